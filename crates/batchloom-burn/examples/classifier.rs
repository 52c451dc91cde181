//! Trains a classifier with Burn's `SupervisedTraining`, and goes on where it was killed.
//!
//! `cargo run --release --example classifier -- FOLDER [EPOCHS]`
//!
//! Checkpoints go to `FOLDER/checkpoint`, the state of the loader beside them. A run that finds a whole checkpoint there
//! goes on after it, and comes to the same weights as one that was never killed: compare the last line.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use batchloom::{Loader, Tensor, TensorDataset};
use batchloom_burn::{BatchLoader, StateFile, tensor};
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor as BurnTensor};
use burn::train::checkpoint::{FileCheckpointer, KeepLastNCheckpoints};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};

const CLASSES: usize = 10;
const FEATURES: usize = 64;
const TRAINING: usize = 60_000;
const VALIDATION: usize = 5_000;

/// Rows and their classes.
struct Rows {
    x: BurnTensor<2>,
    y: BurnTensor<1, Int>,
}

#[derive(Module, Debug)]
struct Classifier {
    hidden: Linear,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        let hidden = LinearConfig::new(FEATURES, 64).init(device);
        Self { hidden, output: LinearConfig::new(64, CLASSES).init(device) }
    }

    fn classify(&self, Rows { x, y }: Rows) -> ClassificationOutput {
        let scores = self.output.forward(relu(self.hidden.forward(x)));
        let loss = CrossEntropyLossConfig::new().init(&scores.device()).forward(scores.clone(), y.clone());
        ClassificationOutput::new(loss, scores, y)
    }
}

impl TrainStep for Classifier {
    type Input = Rows;
    type Output = ClassificationOutput;

    fn step(&self, rows: Rows) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(rows);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Classifier {
    type Input = Rows;
    type Output = ClassificationOutput;

    fn step(&self, rows: Rows) -> ClassificationOutput {
        self.classify(rows)
    }
}

/// Draws rows around the middle of their class.
fn dataset(rows: usize, seed: u64) -> batchloom::Result<TensorDataset> {
    let mut bits = seed;
    let mut draw = move || {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let mut x = Vec::with_capacity(rows * FEATURES);
    for row in 0..rows {
        let class = row % CLASSES;
        x.extend(
            (0..FEATURES).map(|feature| draw() * 4.0 + if feature % CLASSES == class { 1.0 } else { 0.0 }),
        );
    }
    // Burn's metrics compare them with numbers of the device's own type of integers, which is int32 on flex.
    let classes = 0..i32::try_from(CLASSES).unwrap_or(i32::MAX);
    let y = classes.cycle().take(rows).collect::<Vec<_>>();
    TensorDataset::new([("x", Tensor::from_vec(x, &[rows, FEATURES])?), ("y", Tensor::from(y))])
}

/// The loader of the engine as one of Burn.
fn feed(loader: &Arc<Loader>) -> Arc<BatchLoader<Rows>> {
    let loader = BatchLoader::new(Arc::clone(loader), Device::default(), |batch, device| {
        Ok(Rows { x: tensor(batch, "x", device)?, y: tensor(batch, "y", device)? })
    });
    Arc::new(loader)
}

/// The last epoch of which there is a whole checkpoint.
fn last_checkpoint(folder: &Path, epochs: usize) -> Option<usize> {
    let parts = |epoch| {
        [format!("model-{epoch}.bpk"), format!("optim-{epoch}.bpk"), format!("scheduler-{epoch}.bpk")]
            .into_iter()
            .chain([format!("loader-{epoch}.json")])
    };
    (1..=epochs).rev().find(|&epoch| parts(epoch).all(|name| folder.join(name).exists()))
}

/// A number that tells weights apart.
fn digest(model: &Classifier) -> Result<u64, Box<dyn Error>> {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for layer in [&model.hidden, &model.output] {
        for value in layer.weight.val().into_data().try_into_vec::<f32>()? {
            digest = (digest ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(digest)
}

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("expected a folder for checkpoints, and how many epochs")?;
    let epochs = arguments.next().map_or(Ok(4), |epochs| epochs.parse::<usize>())?;
    let checkpoints = Path::new(&folder).join("checkpoint");

    let train = Loader::builder(dataset(TRAINING, 1)?).batch_size(64).shuffle(true).seed(7).build()?;
    let (train, valid) =
        (Arc::new(train), Arc::new(Loader::builder(dataset(VALIDATION, 2)?).batch_size(256).build()?));

    let model =
        StateFile::new(FileCheckpointer::new(&checkpoints, "model"), Arc::clone(&train), &checkpoints);
    let [optimizer, scheduler] = ["optim", "scheduler"].map(|name| FileCheckpointer::new(&checkpoints, name));
    let mut training = SupervisedTraining::new(&folder, feed(&train), feed(&valid))
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_custom_checkpointers(model, optimizer, scheduler)
        .with_checkpointing_strategy(KeepLastNCheckpoints::new(2))
        .with_application_logger(None)
        .num_epochs(epochs);
    if let Some(epoch) = last_checkpoint(&checkpoints, epochs) {
        println!("goes on after epoch {epoch}");
        training = training.checkpoint(epoch);
    }

    let device = Device::default();
    device.seed(7);
    let device = device.autodiff();
    let result = training.launch(Learner::new(Classifier::new(&device), AdamConfig::new().init(), 1e-3));
    if let Some(error) = result.error {
        return Err(error.to_string().into());
    }
    println!("weights {:016x}", digest(&result.model)?);
    Ok(())
}
