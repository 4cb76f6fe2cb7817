//! How much of the space of crash states was looked at. Never silent.

use serde::{Deserialize, Serialize};

/// Coverage of one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Cut points judged.
    pub cut_points: u64,
    /// Distinct crash states over all cut points, as a decimal number.
    pub possible: String,
    /// (cut, state) pairs that were judged against the ledger of that cut.
    pub covered: u64,
    /// Distinct crash images that were recovered.
    pub checked: u64,
    /// Images that were used after recovery and checked by the file system's checker.
    pub used: u64,
    /// Every cut point was enumerated exhaustively.
    pub exhaustive: bool,
    /// Cut points that were sampled.
    pub sampled_cut_points: u64,
    /// Cut points that no budget was left for.
    pub uncovered_cut_points: u64,
    /// Most commands in flight at once.
    pub max_depth: u32,
}
