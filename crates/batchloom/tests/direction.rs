//! Imports point one way: order, batching, ranks, plan know no data; tensor, dataset, collate know no plan; the loader knows all.

use std::path::Path;

/// Each folder with those that it may use, besides `error`.
const MAY_USE: [(&str, &[&str]); 8] = [
    ("order", &[]),
    ("batching", &[]),
    ("ranks", &["order"]),
    ("plan", &["order", "batching", "ranks"]),
    ("tensor", &[]),
    ("dataset", &["tensor", "batching", "order"]),
    ("collate", &["tensor", "dataset"]),
    ("loader", &["tensor", "dataset", "collate", "plan", "batching", "ranks", "order"]),
];

/// The names that `lib.rs` exports at the top, and the folder that each comes from.
const EXPORTED: [(&str, &str); 6] = [
    ("Plan", "plan"),
    ("Tensor", "tensor"),
    ("DType", "tensor"),
    ("TensorDataset", "dataset"),
    ("SequenceDataset", "dataset"),
    ("Loader", "loader"),
];

#[test]
fn imports_point_one_way() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (folder, allowed) in MAY_USE {
        for file in std::fs::read_dir(source.join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for used in used(&text) {
                    assert!(
                        used == folder || allowed.contains(&used.as_str()),
                        "{} uses {used}",
                        path.display()
                    );
                }
            }
        }
    }
}

/// The folders named in `use crate::...` lines.
fn used(text: &str) -> Vec<String> {
    let imports = text.lines().filter_map(|line| line.trim().strip_prefix("use crate::"));
    imports
        .flat_map(|import| {
            let names = import.trim_end_matches(';').trim_start_matches('{').trim_end_matches('}');
            names.split(", ").map(|name| name.split("::").next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .map(|name| {
            EXPORTED.iter().find(|(export, _)| *export == name).map_or(name, |(_, from)| (*from).to_owned())
        })
        .filter(|name| MAY_USE.iter().any(|(folder, _)| folder == name))
        .collect()
}
