//! The rank of this process and the world size, as the launcher of a run sets them in the environment.

use super::error::RanksCause;
use crate::Result;

/// The variables that are read; the first two are set where there are more processes.
const NAMES: [&str; 8] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "LOCAL_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
];

/// The rank of this process and the world size; `None` if no launcher has set them.
///
/// `WORLD_SIZE` is the number of processes. `RANK`, which torchrun sets, is the number of this process. Without `RANK`
/// it is `SLURM_PROCID`, in a step of SLURM with that number of tasks, or, as Lightning's launcher has it, it follows
/// from `NODE_RANK` and `LOCAL_RANK`. The variables of SLURM alone decide nothing: its tasks may be separate runs.
///
/// ```
/// use batchloom::{Loader, Tensor, TensorDataset, ranks};
///
/// let dataset = TensorDataset::new([("x", Tensor::from_vec(vec![0.5_f32; 100], &[100])?)])?;
/// let (rank, world_size) = ranks::launched()?.unwrap_or((0, 1));
/// let loader = Loader::builder(dataset).batch_size(10).rank(rank, world_size).build()?;
/// # Ok::<(), batchloom::Error>(())
/// ```
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument) if the variables say no rank below a world size.
pub fn launched() -> Result<Option<(u32, u32)>> {
    launched_by(|name| std::env::var(name).ok())
}

/// The same, of variables that `get` looks up.
///
/// # Errors
/// The errors of [`launched`].
pub fn launched_by(get: impl Fn(&str) -> Option<String>) -> Result<Option<(u32, u32)>> {
    let get = |name: &str| get(name).filter(|value| !value.is_empty());
    let (rank, world_size) = (get("RANK"), get("WORLD_SIZE"));
    if rank.is_none() && world_size.is_none() {
        return Ok(None);
    }
    let rank_and_size =
        number(world_size).and_then(|world_size| Some((rank_of(&get, world_size)?, world_size)));
    match rank_and_size.filter(|(rank, world_size)| rank < world_size && *world_size <= super::MOST_RANKS) {
        Some(rank_and_size) => Ok(Some(rank_and_size)),
        None => {
            let said = |name: &&str| Some(format!("{name}={:?}", get(name)?));
            Err(RanksCause::Launcher { found: NAMES.iter().filter_map(said).collect::<Vec<_>>().join(", ") }
                .into())
        }
    }
}

fn rank_of(get: &impl Fn(&str) -> Option<String>, world_size: u32) -> Option<u32> {
    if let Some(rank) = get("RANK") {
        return number(Some(rank));
    }
    if number(get("SLURM_NTASKS")) == Some(world_size) && get("SLURM_PROCID").is_some() {
        return number(get("SLURM_PROCID"));
    }
    let node = get("NODE_RANK").or_else(|| get("GROUP_RANK")).map_or(Some(0), |node| number(Some(node)))?;
    let local = number(get("LOCAL_RANK"))?;
    match node {
        0 => Some(local),
        node => node.checked_mul(number(get("LOCAL_WORLD_SIZE"))?)?.checked_add(local),
    }
}

fn number(text: Option<String>) -> Option<u32> {
    text?.trim().parse().ok()
}
