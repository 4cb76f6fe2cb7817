//! What a person writes: a scenario.
//!
//! The types only say what a scenario may hold. Reading the TOML (with file,
//! line and the nearest valid key) is the runner's work; turning a scenario
//! into choices is [`crate::plan`]'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::drive::DriveSpec;
use crate::seed::Seed;
use crate::stack::StackSpec;
use crate::verdict::Role;
use crate::workload::WorkloadSpec;

/// The one schema this version reads.
pub const SCENARIO_SCHEMA: u32 = 1;

/// A scenario: workload, stacks, drives, which of them meet, and the budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Always 1.
    pub schema: u32,
    /// A short name, used in reports.
    pub name: String,
    /// The seed of every choice; `--seed` overrides it. Default 1.
    #[serde(default = "default_seed")]
    pub seed: Seed,
    /// What is written.
    pub workload: WorkloadSpec,
    /// The stacks, by name.
    pub stacks: BTreeMap<String, StackSpec>,
    /// The drives, by name.
    pub drives: BTreeMap<String, DriveSpec>,
    /// Stacks x drives, all subjects.
    #[serde(default)]
    pub matrix: Matrix,
    /// Single cells: further subjects, and the controls. A cell that the
    /// matrix holds too takes the role given here.
    #[serde(default)]
    pub cells: Vec<CellSpec>,
    /// What the workload asks of the stack.
    #[serde(default)]
    pub contract: ContractSpec,
    /// How much to look at.
    #[serde(default)]
    pub budget: Budget,
}

fn default_seed() -> Seed {
    Seed(1)
}

/// Every stack named here on every drive named here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Names of stacks, in the order of the table.
    #[serde(default)]
    pub stacks: Vec<String>,
    /// Names of drives, in the order of the table.
    #[serde(default)]
    pub drives: Vec<String>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellSpec {
    /// Name of a stack.
    pub stack: String,
    /// Name of a drive.
    pub drive: String,
    /// Subject (the default), must-fail or must-pass.
    #[serde(default)]
    pub role: Role,
}

/// In what order acknowledged records may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// No promise.
    #[default]
    None,
    /// If B is there and A was acknowledged before B was issued, A is there.
    Prefix,
}

/// What the workload asks of the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContractSpec {
    /// Acknowledged records younger than this at the cut may be lost. Default 0.
    pub loss_window_ms: u32,
    /// The order promise.
    pub order: Order,
}

/// How much of the space of crash states is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// A cut with at most this many crash states is enumerated exhaustively.
    pub exhaustive_states_per_cut: u32,
    /// A cut with more is sampled: at most this many states.
    pub sampled_states_per_cut: u32,
    /// Distinct crash images judged in one cell; what is above is not covered.
    pub images_per_cell: u32,
    /// After recovery, one image in this many (the first of each cell always)
    /// is used once more: filled, remounted, verified, and checked by the file
    /// system's own checker. 1 = every image.
    pub use_every: u32,
    /// A recovery that takes longer than this is a `hang`.
    pub hang_after_ms: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            exhaustive_states_per_cut: 1024,
            sampled_states_per_cut: 64,
            images_per_cell: 20_000,
            use_every: 16,
            hang_after_ms: 30_000,
        }
    }
}
