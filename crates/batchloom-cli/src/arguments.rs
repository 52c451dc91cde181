//! The arguments of the program.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use batchloom::batching::{CostModel, Rule};
use batchloom::micro_batches::{MicroBatchOrder, OversizeSample, SyncEvery};
use batchloom::ranks::Uneven;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Compares batching rules on the lengths of your samples, plans epochs, and shows them.
#[derive(Debug, Parser)]
#[command(
    name = "batchloom",
    bin_name = "batchloom",
    version,
    propagate_version = true,
    max_term_width = 100
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Write JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the columns of files, and what batchloom can make of each
    Inspect {
        /// Files of any format that `batchloom.open` takes, or folders of them
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Show the lengths of samples: quantiles and a histogram
    Lengths {
        #[command(flatten)]
        source: LengthsSource,
        /// Write the lengths to a .npy file, which other commands read fast
        #[arg(short, long, value_parser = file)]
        output: Option<PathBuf>,
    },
    /// Make the indices of Parquet files and of lines of JSON ahead, beside the files, where `batchloom.open` finds them
    Index {
        /// Files or folders of Parquet, or of lines of JSON, each file indexed alone
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The columns that will be read; all numbers and lists of numbers by default
        #[arg(long = "column", value_name = "NAME")]
        columns: Vec<String>,
    },
    /// Convert Parquet, Arrow or lines of JSON into files that every rank can address, in their order or shuffled
    Convert(Box<ConvertArguments>),
    /// Compare rules: padding, steps, shapes, the largest batch, waiting of ranks
    Compare {
        #[command(flatten)]
        source: LengthsSource,
        #[command(flatten)]
        rules: Rules,
    },
    /// Divide samples in hand among ranks and into micro-batches, balanced by cost
    Microbatches {
        #[command(flatten)]
        source: LengthsSource,
        #[command(flatten)]
        options: Box<MicroBatchOptions>,
    },
    /// Plan an epoch by one rule: its costs, any step, the place of any sample
    Plan(Box<PlanArguments>),
    /// Write a page that shows lengths, rules and a plan
    Report {
        #[command(flatten)]
        source: LengthsSource,
        #[command(flatten)]
        rules: Rules,
        /// The file of the page
        #[arg(short, long, default_value = "report.html", value_parser = file)]
        output: PathBuf,
    },
    /// Tell where a run stands, from the state of its loader
    State {
        /// The state as JSON
        state: PathBuf,
        /// The plan of the run, as `plan --output` wrote it: the state must belong to it
        #[arg(long)]
        plan: Option<PathBuf>,
        /// The number of ranks that continue [default: as in the plan]
        #[arg(long, requires = "plan", value_parser = clap::value_parser!(u32).range(RANKS))]
        world_size: Option<u32>,
    },
    /// Write shell completions
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual as a man page
    Manual,
}

/// The lengths of samples.
#[derive(Debug, Clone, Args)]
pub(crate) struct LengthsSource {
    /// The lengths: files, one after the other: .npy, .npz, .safetensors, .parquet, .arrow, .idx, .txt or .jsonl, a folder
    /// or a pattern of such files, or - for numbers from standard input
    #[arg(required = true)]
    pub(crate) lengths: Vec<PathBuf>,
    /// The column of a Parquet, Arrow or .jsonl file: numbers, or lists and texts, which count by length; or the array of
    /// an .npz or .safetensors file
    #[arg(long)]
    pub(crate) column: Option<String>,
    /// The length of a line of text: the number that it is, its words, or its characters
    #[arg(long, value_enum, default_value_t)]
    pub(crate) count: Count,
}

impl LengthsSource {
    /// Returns true if the lengths are read from standard input.
    pub(crate) fn is_standard_input(&self) -> bool {
        self.lengths.iter().any(|path| path.as_os_str() == "-")
    }

    /// The files in a few words.
    pub(crate) fn title(&self) -> String {
        let first = self.lengths.first().map(|path| path.display().to_string()).unwrap_or_default();
        match self.lengths.len() {
            0 | 1 => first,
            count => format!("{first} and {} more", count - 1),
        }
    }
}

/// The numbers of ranks that there can be.
const RANKS: RangeInclusive<i64> = 1..=1 << 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Count {
    #[default]
    Numbers,
    Words,
    Characters,
}

/// The rules to compare.
#[derive(Debug, Args)]
pub(crate) struct Rules {
    /// A rule, such as token-budget:16384,multiple_of=64; may be given several times [default: all, at equal tokens]
    #[arg(long = "rule", value_name = "RULE")]
    pub(crate) rules: Vec<Rule>,
    /// The number of ranks
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(RANKS))]
    pub(crate) world_size: u32,
    /// The elements of a batch, for the default rules [default: those of 64 samples of mean length]; rules of equal
    /// numbers of samples hold as many on average
    #[arg(long, conflicts_with_all = ["rules", "memory"], value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// The memory that any batch may take, such as 40GiB, for the default rules: those of equal numbers of samples hold
    /// as many of the longest
    #[arg(long, requires = "bytes_per_token", conflicts_with = "rules")]
    pub(crate) memory: Option<Bytes>,
    /// The memory that an element takes, such as 2.1MB
    #[arg(long, requires = "memory")]
    pub(crate) bytes_per_token: Option<Bytes>,
    /// The cost of a batch, of an element and of a pair of elements, such as 0.004,2e-7,1e-11: rules are then compared
    /// by the time of an epoch
    #[arg(long, value_name = "FIXED,TOKEN,PAIR")]
    pub(crate) cost: Option<Cost>,
}

/// The division of samples in hand.
#[derive(Debug, Args)]
pub(crate) struct MicroBatchOptions {
    /// The number of ranks
    #[arg(long, value_parser = clap::value_parser!(u32).range(RANKS))]
    pub(crate) world_size: u32,
    /// The most tokens in a micro-batch
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: u64,
    /// The cost of a micro-batch, of a token and of a pair of tokens of a sample [default: attention costs as much as all
    /// else at 24576 tokens]
    #[arg(long, value_name = "FIXED,TOKEN,PAIR")]
    pub(crate) cost: Option<Cost>,
    /// The most samples in a micro-batch
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_samples: Option<u32>,
    /// The number that lengths are rounded up to a multiple of
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) multiple_of: u32,
    /// The least number of micro-batches of a rank
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) least: u32,
    /// The number of micro-batches of a rank: the latest samples are left if they do not fit
    #[arg(long = "micro-batches", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) exactly: Option<u32>,
    /// The number that the micro-batches of a rank are a multiple of
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count_multiple_of: u32,
    /// Give each rank as many samples
    #[arg(long)]
    pub(crate) equal_samples: bool,
    /// The place where ranks wait for each other: micro_batch or update
    #[arg(long, default_value = "micro_batch", value_parser = SyncEvery::from_str)]
    pub(crate) sync: SyncEvery,
    /// Treatment of a sample that exceeds a micro-batch: error, alone or drop
    #[arg(long, default_value = "error", value_parser = OversizeSample::from_str)]
    pub(crate) oversize: OversizeSample,
    /// The order of micro-batches: largest_first or ends
    #[arg(long, default_value = "largest_first", value_parser = MicroBatchOrder::from_str)]
    pub(crate) order: MicroBatchOrder,
}

#[derive(Debug, Args)]
#[command(subcommand_precedence_over_arg = true)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) source: LengthsSource,
    #[command(flatten)]
    pub(crate) run: Run,
    /// Write the plan to a file: its recipe and its fingerprint
    #[arg(short, long, value_parser = file)]
    pub(crate) output: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) question: Option<Question>,
}

/// The options of a run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The rule, such as token-budget:16384,multiple_of=64
    #[arg(long)]
    pub(crate) rule: Rule,
    /// Take samples as they are stored, not in a random order
    #[arg(long)]
    pub(crate) in_order: bool,
    /// The number that random orders depend on
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// The epoch
    #[arg(long, default_value_t = 0)]
    pub(crate) epoch: u64,
    /// The number of ranks
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(RANKS))]
    pub(crate) world_size: u32,
    /// Put batches of similar cost into the same step, attention included
    #[arg(long)]
    pub(crate) balance: bool,
    /// Leave out samples and batches that fill no batch and no step
    #[arg(long)]
    pub(crate) drop_last: bool,
    /// Treatment of batches that do not fill the last step: pad, mask or short
    #[arg(long, default_value = "pad", value_parser = Uneven::from_str)]
    pub(crate) uneven: Uneven,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// Show the samples of a step
    Step {
        /// The step
        step: u64,
        /// Only this rank
        #[arg(long)]
        rank: Option<u32>,
    },
    /// Show the step, the rank and the place of a sample
    Where {
        /// The number of the sample
        sample: u64,
    },
    /// Compare with another plan of the same lengths, as `plan --output` wrote it: the first step that differs
    Diff {
        /// The file of the other plan
        other: PathBuf,
    },
    /// Write every step as a line of JSON
    Export {
        /// The file; standard output unless given
        #[arg(short, long, value_parser = file)]
        output: Option<PathBuf>,
    },
}

/// The name of a file to write.
fn file(text: &str) -> Result<PathBuf, String> {
    match text {
        "-" => {
            Err("results go to standard output unless they have a file; expected the name of one".to_owned())
        }
        name => Ok(name.into()),
    }
}

/// A number of bytes, with or without a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bytes(pub(crate) f64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end =
            text.find(|letter: char| letter.is_ascii_alphabetic() && letter != 'e').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let factor = match unit.trim() {
            "" | "B" => 1.0,
            "kB" | "KB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            unit => {
                return Err(format!("there is no unit {unit:?}; expected B, kB, MB, GB, KiB, MiB or GiB"));
            }
        };
        match number.trim().parse::<f64>() {
            Ok(number) if number.is_finite() && number > 0.0 => Ok(Self(number * factor)),
            _ => Err(format!("{text:?} is no number of bytes; expected one above 0, such as 40GiB")),
        }
    }
}

/// A cost model as three numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost(pub(crate) CostModel);

impl FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<f64> =
            text.split(',').map(|number| number.trim().parse()).collect::<Result<_, _>>().map_err(|_| {
                format!("{text:?} is no cost; expected three numbers with commas between them")
            })?;
        match numbers[..] {
            [fixed, token, pair] => {
                CostModel::new(fixed, token, pair).map(Self).map_err(|error| error.to_string())
            }
            _ => Err(format!("there are {} numbers; expected three: FIXED,TOKEN,PAIR", numbers.len())),
        }
    }
}

/// The arguments of `convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// Files or folders of Parquet or Arrow, or of lines of JSON; the rows of one file follow the rows of another
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The folder of the new files: empty, or of the same conversion, which goes on
    #[arg(short, long)]
    pub(crate) out: PathBuf,
    /// The format of the new files
    #[arg(long)]
    pub(crate) to: TargetFormat,
    /// The seed of a shuffle of all rows
    #[arg(long, value_name = "SEED")]
    pub(crate) shuffle: Option<u64>,
    /// The columns that are converted; all by default, and what the format does not hold is refused
    #[arg(long = "column", value_name = "NAME")]
    pub(crate) columns: Vec<String>,
    /// The type of tokens in --to bin [default: uint16]
    #[arg(long)]
    pub(crate) dtype: Option<TokenWidth>,
    /// The token behind each document in --to bin
    #[arg(long, value_name = "TOKEN")]
    pub(crate) end: Option<u32>,
}

/// The format of new files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetFormat {
    Arrow,
    Safetensors,
    Bin,
}

/// The type of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenWidth {
    Uint16,
    Uint32,
}
