//! The file of a plan: the recipe, the lengths that it is about, and the fingerprint.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use batchloom::Plan;
use batchloom::batching::{Rule, Sizes};
use batchloom::ranks::Uneven;
use serde::{Deserialize, Serialize};

use crate::arguments::{Count, LengthsSource, Run};
use crate::read::{self, Tables};

/// A plan as a file keeps it. A relative path of lengths counts from the folder of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanFile {
    #[serde(with = "one_or_many")]
    pub(crate) lengths: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<String>,
    pub(crate) rule: Rule,
    pub(crate) shuffle: bool,
    pub(crate) seed: u64,
    pub(crate) epoch: u64,
    pub(crate) world_size: u32,
    pub(crate) balance: bool,
    pub(crate) drop_last: bool,
    pub(crate) uneven: Uneven,
    pub(crate) fingerprint: String,
}

impl PlanFile {
    /// The file of a plan that is about to be built, which goes to `folder` if it is written.
    pub(crate) fn new(source: &LengthsSource, run: &Run, folder: Option<&Path>) -> Result<Self> {
        let count = match source.count {
            Count::Numbers => None,
            Count::Words => Some("words".to_owned()),
            Count::Characters => Some("characters".to_owned()),
        };
        let is_here = folder.is_none_or(|folder| folder.as_os_str().is_empty());
        let lengths = match is_here || source.is_standard_input() {
            true => source.lengths.clone(),
            false => source.lengths.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
        };
        Ok(Self {
            lengths,
            column: source.column.clone(),
            count,
            rule: run.rule.clone(),
            shuffle: !run.in_order,
            seed: run.seed,
            epoch: run.epoch,
            world_size: run.world_size,
            balance: run.balance,
            drop_last: run.drop_last,
            uneven: run.uneven,
            fingerprint: String::new(),
        })
    }

    /// Reads the file of a plan.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let named = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(named)?;
        let parsed = serde_json::from_str(&text);
        let mut plan_file: Self = parsed
            .context("this is not the file of a plan, as `batchloom plan --output` writes it")
            .with_context(named)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for file in plan_file.lengths.iter_mut().filter(|file| file.as_os_str() != "-") {
            *file = folder.join(&*file);
        }
        Ok(plan_file)
    }

    /// Builds the plan over lengths.
    pub(crate) fn plan(&self, sizes: Sizes) -> Result<Plan> {
        let builder = Plan::builder(sizes.len()).sizes(sizes).rule(self.rule.clone()).shuffle(self.shuffle);
        let builder = builder.seed(self.seed).epoch(self.epoch).world_size(self.world_size);
        let builder = builder.balance(self.balance).drop_last(self.drop_last).uneven(self.uneven);
        Ok(builder.build()?)
    }

    /// Builds the plan that the file was written for, over the lengths that it names, or over those that `given` were read
    /// from standard input, if it names that.
    pub(crate) fn rebuild(&self, tables: &dyn Tables, given: Option<&Sizes>) -> Result<Plan> {
        let count = match self.count.as_deref() {
            Some("words") => Count::Words,
            Some("characters") => Count::Characters,
            _ => Count::Numbers,
        };
        let source = LengthsSource { lengths: self.lengths.clone(), column: self.column.clone(), count };
        let sizes = match given.filter(|_| source.is_standard_input()) {
            Some(given) => given.clone(),
            None => read::sizes(&source, tables, [&self.rule])?,
        };
        let plan = self.plan(sizes)?;
        if plan.fingerprint() != self.fingerprint {
            bail!(
                "{} has changed since the plan was written: its fingerprint is {} now, and was {}",
                source.title(),
                plan.fingerprint(),
                self.fingerprint
            );
        }
        Ok(plan)
    }
}

/// Paths as a file keeps them: one by itself, several as a list.
mod one_or_many {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Kept {
        One(PathBuf),
        Many(Vec<PathBuf>),
    }

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        match paths {
            [path] => path.serialize(serializer),
            paths => paths.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(match Kept::deserialize(deserializer)? {
            Kept::One(path) => vec![path],
            Kept::Many(paths) => paths,
        })
    }
}
