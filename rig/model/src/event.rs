//! What happens in a run, in order. Every report is a fold over these.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::coverage::Coverage;
use crate::plan::PlannedCell;
use crate::seed::Seed;
use crate::units::{Position, Trial};
use crate::verdict::{Explanation, Finding, FindingKind, Role, Verdict};

/// Version of `events.jsonl`.
pub const EVENTS_SCHEMA: u32 = 1;

/// A cell as the plan names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellName {
    /// `<stack>@<drive>`.
    pub id: String,
    /// The stack's name.
    pub stack: String,
    /// The drive's name.
    pub drive: String,
    /// The cutter's name.
    pub cutter: String,
    /// What it is for.
    pub role: Role,
}

/// Acknowledgement latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyNs {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}

/// What a recording held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingSummary {
    /// Records issued.
    pub issued: u64,
    /// Records acknowledged.
    pub acknowledged: u64,
    /// First cut point.
    pub base: Position,
    /// Last cut point.
    pub last_acknowledgement: Position,
    /// Commands between the two, by kind: `write`, `write-fua`, `flush`, `discard`, `write-zeroes`.
    pub commands: BTreeMap<String, u64>,
    /// Most commands in flight at once.
    pub max_depth: u32,
    /// Acknowledgement latency.
    pub latency_ns: LatencyNs,
    /// Mount options asked for and those in effect, where there is a file system.
    pub requested_options: String,
    /// As the kernel prints them.
    pub effective_options: String,
    /// Queue settings of the device as attached: `write_cache`, `fua`, `scheduler`, ...
    pub queue: BTreeMap<String, String>,
}

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// First event of a run.
    RunStarted {
        /// [`EVENTS_SCHEMA`].
        schema: u32,
        /// The scenario's name.
        scenario: String,
        /// The seed.
        seed: Seed,
        /// The run id, 32 hex digits.
        run: String,
        /// The cells in order.
        cells: Vec<CellName>,
    },
    /// A cell with every choice made: stack, drive, planted faults, workload.
    Planned {
        /// The cell.
        cell: Box<PlannedCell>,
    },
    /// What the run ran on: kernel, machine, tools. Ordered, for people.
    Environment {
        /// Facts by name.
        facts: BTreeMap<String, String>,
    },
    /// The run goes on after it was interrupted.
    RunResumed,
    /// A cell begins.
    CellStarted {
        /// The cell's id.
        cell: String,
        /// Its trial.
        trial: Trial,
    },
    /// A trial was recorded.
    Recorded {
        /// The cell's id.
        cell: String,
        /// Its trial.
        trial: Trial,
        /// What it held.
        summary: RecordingSummary,
    },
    /// A breach was found. Only the first few of each kind and cell are kept
    /// whole; [`Event::CellFinished`] has the counts.
    Found {
        /// The finding.
        finding: Box<Finding>,
    },
    /// A finding was reduced and explained.
    Explained {
        /// The cell's id.
        cell: String,
        /// The finding's id.
        finding: String,
        /// Why it came about.
        explanation: Box<Explanation>,
    },
    /// A cell ended.
    CellFinished {
        /// The cell's id.
        cell: String,
        /// Its trial.
        trial: Trial,
        /// Its own verdict, before the roll-up looks at the controls.
        verdict: Verdict,
        /// Coverage.
        coverage: Coverage,
        /// (image, cut) pairs with at least one breach, by kind. Contractual losses are not in it.
        findings: BTreeMap<FindingKind, u64>,
        /// Losses inside the contract, by kind.
        contractual: BTreeMap<FindingKind, u64>,
        /// Whether an acknowledged record was lost on an image that mounted.
        lost_on_a_mounted_image: bool,
    },
    /// Last event of a run that came to its end.
    RunFinished {
        /// The roll-up.
        verdict: Verdict,
    },
}
