//! Imports point one way: from folder to folder as [`MAY_USE`] says, and from file to file without a circle.
//!
//! Every path of the source is read, in `use` lines and elsewhere, macros included, and followed through re-exports to
//! the file that defines what it names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, UseTree};

/// Each folder with the folders that it may use. Every file may use `error`, `brief`, `memory`,
/// `named`, `sync` and `cores`.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("order", &[]),
    ("draws", &["order"]),
    ("batching", &[]),
    ("ranks", &["order"]),
    ("plan", &["order", "draws", "batching", "ranks"]),
    ("run", &["plan", "batching"]),
    ("micro_batches", &["batching"]),
    ("tensor", &[]),
    ("collate", &["tensor", "order"]),
    ("dataset", &["tensor", "batching", "order", "collate"]),
    ("loader", &["tensor", "dataset", "collate", "run", "plan", "draws", "batching", "ranks", "order"]),
];

/// A path as it is written, or the module path that it means: its segments.
type Names = Vec<String>;

/// One file of the source.
struct Module {
    file: String,
    /// The paths that the file mentions, in code or in private imports.
    mentioned: Vec<Names>,
    /// The paths that it brings into scope, by the name that they have there.
    imported: BTreeMap<String, Names>,
}

/// Collects the paths of one file.
#[derive(Default)]
struct Paths {
    mentioned: Vec<Names>,
    imported: Vec<Names>,
    reexported: Vec<Names>,
}

impl Visit<'_> for Paths {
    fn visit_item(&mut self, item: &Item) {
        match item {
            Item::Use(import) => {
                let public = !matches!(import.vis, syn::Visibility::Inherited);
                let paths = if public { &mut self.reexported } else { &mut self.imported };
                leaves(&import.tree, &mut Vec::new(), paths);
            }
            Item::Mod(module) if is_test(&module.attrs) => {}
            item => visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.mentioned.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &syn::Visibility) {}

    fn visit_macro(&mut self, invoked: &syn::Macro) {
        self.tokens(invoked.tokens.clone());
    }
}

impl Paths {
    /// Collects runs of `name::name` in tokens that no grammar is known for.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut names, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 || names.is_empty() => names.push(name.to_string()),
                TokenTree::Ident(name) => {
                    self.mentioned.push(std::mem::replace(&mut names, vec![name.to_string()]));
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                // The visibility of an item that a macro makes.
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Parenthesis && names == ["pub"] => {}
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => self.mentioned.push(std::mem::take(&mut names)),
            }
            colons = 0;
        }
        self.mentioned.push(names);
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

/// Lists the paths of a `use` tree.
fn leaves(tree: &UseTree, before: &mut Names, paths: &mut Vec<Names>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, paths);
            before.pop();
        }
        UseTree::Name(name) => paths.push([before.as_slice(), &[name.ident.to_string()]].concat()),
        // The original name says more than the one given here.
        UseTree::Rename(rename) => paths.push([before.as_slice(), &[rename.ident.to_string()]].concat()),
        UseTree::Glob(_) => paths.push(before.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, paths)),
    }
}

/// All files of the source, by module path.
fn modules() -> BTreeMap<Names, Module> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut modules = BTreeMap::new();
    let mut folders: Vec<(PathBuf, Names)> = vec![(source.clone(), Vec::new())];
    while let Some((folder, names)) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let inner = [names.as_slice(), std::slice::from_ref(&stem)].concat();
            if path.is_dir() {
                folders.push((path, inner));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let face = stem == "mod" || stem == "lib";
                let file = path.strip_prefix(&source).unwrap().to_string_lossy().into_owned();
                modules.insert(if face { names.clone() } else { inner }, module(file, &path));
            }
        }
    }
    modules
}

fn module(file: String, path: &Path) -> Module {
    let mut paths = Paths::default();
    paths.visit_file(&syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap());
    let Paths { mut mentioned, imported, reexported } = paths;
    let named = |names: &Names| (names.last().unwrap().clone(), names.clone());
    let scope = imported.iter().chain(&reexported).filter(|names| !names.is_empty()).map(named).collect();
    mentioned.extend(imported);
    Module { file, mentioned, imported: scope }
}

/// The module that defines what `names` mean in the module `at`; nothing for paths of other crates and plain names.
fn resolve(modules: &BTreeMap<Names, Module>, at: &Names, names: &[String], depth: u8) -> Option<Names> {
    let (first, rest) = names.split_first()?;
    let mut here = match first.as_str() {
        "crate" => Vec::new(),
        "self" => at.clone(),
        "super" => at[..at.len().checked_sub(1)?].to_vec(),
        name => {
            let inner = [at.as_slice(), &[name.to_owned()]].concat();
            match (modules.contains_key(&inner), modules[at].imported.get(name)) {
                (true, _) => inner,
                (false, Some(import)) if depth > 0 && import.as_slice() != names => {
                    let names = [import.as_slice(), rest].concat();
                    return resolve(modules, at, &names, depth - 1);
                }
                _ => return None,
            }
        }
    };
    for (place, name) in rest.iter().enumerate() {
        let inner = [here.as_slice(), std::slice::from_ref(name)].concat();
        if name == "super" {
            here.pop()?;
        } else if modules.contains_key(&inner) {
            here = inner;
        } else if let Some(import) = modules[&here].imported.get(name).filter(|_| depth > 0) {
            let names = [import.as_slice(), &rest[place + 1..]].concat();
            return resolve(modules, &here, &names, depth - 1).or(Some(here));
        } else {
            return Some(here);
        }
    }
    Some(here)
}

/// The files that each file uses.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules();
    let used = |at: &Names, module: &Module| {
        let targets = module.mentioned.iter().filter_map(|names| resolve(&modules, at, names, 8));
        targets.map(|names| modules[&names].file.clone()).filter(|file| *file != module.file).collect()
    };
    modules.iter().map(|(at, module)| (module.file.clone(), used(at, module))).collect()
}

/// The folder of a file; the file itself at the top.
fn folder(file: &str) -> &str {
    file.split_once('/').map_or(file, |(folder, _)| folder)
}

#[test]
fn imports_point_one_way() {
    let arrows = arrows();
    for (name, allowed) in MAY_USE {
        let files: Vec<_> = arrows.iter().filter(|(file, _)| folder(file) == name).collect();
        assert!(!files.is_empty(), "there is no folder {name}");
        for (file, used) in files {
            for other in used {
                let shared = ["error", "brief.rs", "memory.rs", "named.rs", "sync.rs", "cores.rs"];
                let known = folder(other) == name || [allowed, &shared].concat().contains(&folder(other));
                assert!(known, "{file} uses {other}; {name} may use {allowed:?}");
            }
        }
    }
}

#[test]
fn no_files_form_a_circle() {
    let mut arrows = arrows();
    // Faces of folders gather what is in them; what lies on no circle falls away, leaf by leaf.
    loop {
        let leaves: Vec<String> =
            arrows.iter().filter(|(_, used)| used.is_empty()).map(|(file, _)| file.clone()).collect();
        if leaves.is_empty() {
            break;
        }
        arrows.retain(|file, _| !leaves.contains(file));
        arrows.values_mut().for_each(|used| used.retain(|file| !leaves.contains(file)));
    }
    let left: Vec<String> = arrows.iter().map(|(file, used)| format!("{file} uses {used:?}")).collect();
    assert!(
        left.is_empty(),
        "files that use each other in a circle, or use one that does:\n{}",
        left.join("\n")
    );
}

#[test]
fn paths_are_followed_to_the_file_that_defines_them() {
    let arrows = arrows();
    // Through `lib.rs` and the face of the folder, and outside `use` lines.
    assert!(arrows["loader/loader.rs"].contains("plan/plan.rs"));
    assert!(arrows["loader/fields.rs"].contains("dataset/collation.rs"));
    assert!(arrows["dataset/tensors.rs"].contains("error/mod.rs"));
}
