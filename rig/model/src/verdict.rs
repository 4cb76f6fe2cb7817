//! Verdicts, findings, and how they roll up to an exit code.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{ByteOffset, Position, Sector, Sequence, StreamId, Trial};

/// What a cell is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The question.
    #[default]
    Subject,
    /// A control that has to lose acknowledged records on images that mount.
    MustFail,
    /// A control that has to be upheld.
    MustPass,
}

impl Role {
    /// The role as reports spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Subject => "subject",
            Role::MustFail => "must-fail",
            Role::MustPass => "must-pass",
        }
    }
}

/// The answer for a cell or a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing that was acknowledged was lost in anything that was judged.
    Upheld,
    /// At least one finding.
    Violated,
    /// The rig cannot say, and why. Never a pass.
    Inconclusive(InconclusiveReason),
    /// The kernel will not mount this stack at all, in its own words.
    Refused(String),
}

impl Verdict {
    /// The verdict as `report.json` spells it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Upheld => "upheld",
            Verdict::Violated => "violated",
            Verdict::Inconclusive(_) => "inconclusive",
            Verdict::Refused(_) => "refused",
        }
    }

    /// The reason, for the verdicts that have one.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match self {
            Verdict::Upheld | Verdict::Violated => None,
            Verdict::Inconclusive(reason) => Some(reason.to_string()),
            Verdict::Refused(words) => Some(words.clone()),
        }
    }
}

/// Why a verdict is inconclusive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InconclusiveReason {
    /// No judged cut lies behind an acknowledgement.
    NothingAcknowledged,
    /// The recording or a crash image could not be brought to an end.
    TrialFailed(String),
    /// A crash image could not be judged.
    Unjudged {
        /// How many images.
        images: u64,
        /// The first reason.
        first: String,
    },
    /// The ledger is void: nothing that it says can be relied on.
    LedgerVoid(String),
    /// The recording never exercised something the cell claims to test.
    NeverExercised(String),
    /// A control of the run misbehaved.
    ControlMisbehaved(String),
    /// The cell has not run, or not to its end.
    NotFinished,
}

impl fmt::Display for InconclusiveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InconclusiveReason::NothingAcknowledged => {
                f.write_str("no acknowledged record precedes any judged cut")
            }
            InconclusiveReason::TrialFailed(why) => write!(f, "the trial failed: {why}"),
            InconclusiveReason::Unjudged { images, first } => {
                write!(
                    f,
                    "{images} crash images could not be judged, the first because: {first}"
                )
            }
            InconclusiveReason::LedgerVoid(why) => write!(f, "the ledger is void: {why}"),
            InconclusiveReason::NeverExercised(what) => {
                write!(f, "the recording never exercised {what}")
            }
            InconclusiveReason::ControlMisbehaved(which) => {
                write!(f, "a control is not as it must be: {which}")
            }
            InconclusiveReason::NotFinished => f.write_str("the cell has not run to its end"),
        }
    }
}

/// What kind of contract breach a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// An acknowledged record is gone.
    Lost,
    /// An acknowledged record is mixed with something else, whole logical blocks each.
    Torn,
    /// Mixed inside one logical block.
    Shorn,
    /// An older acknowledged version of the record is there.
    Stale,
    /// Another file's data, or older raw data.
    Foreign,
    /// Another record of this run, at the wrong place.
    Misdirected,
    /// A record that was never issued before the cut.
    Unexpected,
    /// Only under `order = "prefix"`: B is there, A acknowledged before B was issued is gone.
    Unserializable,
    /// Part of a transaction is there.
    PartialTransaction,
    /// The right record with wrong bytes.
    Corrupt,
    /// Reading fails (EIO, EUCLEAN).
    Unreadable,
    /// The crash image does not mount.
    Unmountable,
    /// A checker finds damage after kernel recovery and clean unmount.
    Metadata,
    /// Recovery did not end in time.
    Hang,
    /// The kernel oopsed, warned, or forced the file system read-only.
    KernelFault,
    /// The drive no longer answers.
    DeadDevice,
}

impl FindingKind {
    /// Every kind, in the order of reports.
    pub const ALL: [FindingKind; 16] = [
        FindingKind::Lost,
        FindingKind::Torn,
        FindingKind::Shorn,
        FindingKind::Stale,
        FindingKind::Foreign,
        FindingKind::Misdirected,
        FindingKind::Unexpected,
        FindingKind::Unserializable,
        FindingKind::PartialTransaction,
        FindingKind::Corrupt,
        FindingKind::Unreadable,
        FindingKind::Unmountable,
        FindingKind::Metadata,
        FindingKind::Hang,
        FindingKind::KernelFault,
        FindingKind::DeadDevice,
    ];

    /// The kind as reports spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Lost => "lost",
            FindingKind::Torn => "torn",
            FindingKind::Shorn => "shorn",
            FindingKind::Stale => "stale",
            FindingKind::Foreign => "foreign",
            FindingKind::Misdirected => "misdirected",
            FindingKind::Unexpected => "unexpected",
            FindingKind::Unserializable => "unserializable",
            FindingKind::PartialTransaction => "partial-transaction",
            FindingKind::Corrupt => "corrupt",
            FindingKind::Unreadable => "unreadable",
            FindingKind::Unmountable => "unmountable",
            FindingKind::Metadata => "metadata",
            FindingKind::Hang => "hang",
            FindingKind::KernelFault => "kernel-fault",
            FindingKind::DeadDevice => "dead-device",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an object must, may or must not be after recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Acknowledged before the cut.
    Required,
    /// Issued, not acknowledged.
    Permitted,
    /// Not issued.
    Forbidden,
}

/// Whether the stack said that something was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detection {
    /// An error, a failed mount, a message.
    Detected,
    /// Nothing.
    Silent,
}

/// Which record a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRef {
    /// The writer's stream.
    pub stream: StreamId,
    /// Place in the stream.
    pub sequence: Sequence,
    /// Version expected.
    pub version: u32,
}

/// One breach of the contract on one crash image, as the oracle states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breach {
    /// Its kind.
    pub kind: FindingKind,
    /// The object: a file name, `device`, or `file system`.
    pub object: String,
    /// The record, where it is about one.
    pub record: Option<RecordRef>,
    /// What the contract says of it.
    pub expected: Fate,
    /// What was found, in words.
    pub observed: String,
    /// Where in the object.
    pub offset: Option<ByteOffset>,
    /// The device sector, where it is known (raw stacks).
    pub sector: Option<Sector>,
    /// `lost` only: a later record of the same stream is there.
    pub newer_survives: bool,
    /// Seen only after the recovered stack was used once more.
    pub after_recovery: bool,
    /// Whether the stack said so.
    pub detection: Detection,
    /// Where the acknowledgement stood, for required records.
    pub acknowledged_at: Option<Position>,
    /// Line of the ledger that holds the acknowledgement, from 1.
    pub ledger_line: Option<u64>,
    /// Inside both the loss window and the order promise: reported, not failed.
    pub contractual: bool,
}

/// A breach with the place and the command that reproduces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// `<cell>#<n>`, n from 1 in the order found.
    pub id: String,
    /// The cell.
    pub cell: String,
    /// The trial.
    pub trial: Trial,
    /// The cut.
    pub cut: Position,
    /// The crash image, by content (32 hex digits).
    pub image: String,
    /// The survivors: which pending fragments the image holds, in words.
    pub state: String,
    /// What was breached.
    pub breach: Breach,
    /// Why, from a closed set. The explanation, where there is one, knows better.
    pub cause: Cause,
    /// The smallest loss that does the same, and why; for the first finding of
    /// each kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
    /// The command that rebuilds this image and judges it again.
    pub reproduce: String,
}

/// Why a finding came about, as far as the write log shows. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// No flush arrived between the last completed data write and the acknowledgement.
    NoFlushBeforeAcknowledgement,
    /// The data was not written at all when it was acknowledged.
    AcknowledgedBeforeItsData,
    /// A flush was answered with success; the drive is set to ignore it.
    FlushIgnored,
    /// A FUA write was answered with success; the drive is set to ignore it.
    FuaIgnored,
    /// The log commits metadata that points to data which is not there.
    MetadataBeforeData,
    /// One command survived in part: it is larger than the drive's atomic unit.
    TornBeyondAtomicUnit,
    /// A journal's commit record survived without the blocks that it commits.
    JournalCommitWithoutItsBlocks,
    /// Recovery left blocks in use marked as free, and using it again took them.
    StaleAllocationAfterRecovery,
    /// A planted fault of the drive.
    PlantedFault,
    /// The log does not settle it.
    Unexplained,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 10] = [
        Cause::NoFlushBeforeAcknowledgement,
        Cause::AcknowledgedBeforeItsData,
        Cause::FlushIgnored,
        Cause::FuaIgnored,
        Cause::MetadataBeforeData,
        Cause::TornBeyondAtomicUnit,
        Cause::JournalCommitWithoutItsBlocks,
        Cause::StaleAllocationAfterRecovery,
        Cause::PlantedFault,
        Cause::Unexplained,
    ];

    /// The cause as reports spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::NoFlushBeforeAcknowledgement => "no flush before the acknowledgement",
            Cause::AcknowledgedBeforeItsData => "acknowledged before its data was written",
            Cause::FlushIgnored => "flush ignored by the drive",
            Cause::FuaIgnored => "FUA ignored by the drive",
            Cause::MetadataBeforeData => "metadata before data",
            Cause::TornBeyondAtomicUnit => "torn beyond the atomic unit",
            Cause::JournalCommitWithoutItsBlocks => "journal commit without its blocks",
            Cause::StaleAllocationAfterRecovery => "stale allocation after recovery",
            Cause::PlantedFault => "planted fault",
            Cause::Unexplained => "unexplained",
        }
    }
}

/// A part of a command that the reduced crash image lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFragment {
    /// The command's number among the entries of the write log, from 0, where it is known.
    pub entry: Option<u64>,
    /// `write`, `write-fua`, `write-zeroes` or `discard`.
    pub command: String,
    /// First sector on the device.
    pub sector: Sector,
    /// Sectors.
    pub sectors: u64,
    /// What they hold, in words, where they tell.
    pub holds: Option<String>,
}

/// The smallest loss found that breaches the same contract, and why it could.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Why.
    pub cause: Cause,
    /// What is missing. Empty: everything that was written before the cut is there.
    pub lost: Vec<LostFragment>,
    /// Whether none of `lost` can be given back without the breach going away.
    pub minimal: bool,
    /// Crash images that were judged to find it.
    pub tried: u32,
    /// The reduced crash image, 32 hex digits.
    pub image: String,
    /// The reasoning, one sentence each.
    pub because: Vec<String>,
}

/// A run's exit codes: part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Every subject upheld.
    Upheld = 0,
    /// Some subject violated.
    Violated = 1,
    /// The command line or the scenario is wrong.
    Usage = 2,
    /// No subject violated, some inconclusive.
    Inconclusive = 3,
    /// Every subject refused, or a needed backend is missing.
    Refused = 4,
    /// The rig itself failed.
    Failed = 5,
}

/// A cell as the roll-up sees it.
#[derive(Clone, Debug)]
pub struct RollUpCell<'a> {
    /// The cell's id.
    pub id: &'a str,
    /// What it is for.
    pub role: Role,
    /// Its verdict.
    pub verdict: &'a Verdict,
    /// Whether some image mounted on which an acknowledged record was lost:
    /// what makes a must-fail control count.
    pub lost_on_a_mounted_image: bool,
}

/// The misbehaving controls of a run, in words.
#[must_use]
pub fn misbehaving_controls(cells: &[RollUpCell<'_>]) -> Vec<String> {
    cells
        .iter()
        .filter_map(|cell| match cell.role {
            Role::Subject => None,
            Role::MustPass => (*cell.verdict != Verdict::Upheld)
                .then(|| format!("{} must be upheld and is {}", cell.id, cell.verdict.name())),
            Role::MustFail => (*cell.verdict != Verdict::Violated || !cell.lost_on_a_mounted_image)
                .then(|| {
                    format!(
                        "{} must lose an acknowledged record on an image that mounts, and is {}",
                        cell.id,
                        match cell.verdict {
                            Verdict::Violated => "violated without one",
                            other => other.name(),
                        }
                    )
                }),
        })
        .collect()
}

/// The verdict a subject has in its run: a misbehaving control makes it
/// inconclusive unless it is violated or refused.
#[must_use]
pub fn subject_verdict(own: &Verdict, misbehaving: &[String]) -> Verdict {
    match (own, misbehaving.first()) {
        (Verdict::Upheld, Some(first)) => {
            Verdict::Inconclusive(InconclusiveReason::ControlMisbehaved(first.clone()))
        }
        _ => own.clone(),
    }
}

/// The run's verdict: the worst subject, violated > inconclusive > upheld.
/// Refused subjects do not change it unless all are.
#[must_use]
pub fn roll_up(cells: &[RollUpCell<'_>]) -> Verdict {
    let misbehaving = misbehaving_controls(cells);
    let subjects: Vec<Verdict> = cells
        .iter()
        .filter(|cell| cell.role == Role::Subject)
        .map(|cell| subject_verdict(cell.verdict, &misbehaving))
        .collect();
    let first = |wanted: &str| {
        subjects
            .iter()
            .find(|verdict| verdict.name() == wanted)
            .cloned()
    };
    if let Some(violated) = first("violated") {
        return violated;
    }
    if let Some(inconclusive) = first("inconclusive") {
        return inconclusive;
    }
    if let Some(upheld) = first("upheld") {
        return upheld;
    }
    first("refused").unwrap_or(Verdict::Inconclusive(InconclusiveReason::NotFinished))
}

/// The exit code of a run's verdict.
#[must_use]
pub fn exit_of(verdict: &Verdict) -> Exit {
    match verdict {
        Verdict::Upheld => Exit::Upheld,
        Verdict::Violated => Exit::Violated,
        Verdict::Inconclusive(_) => Exit::Inconclusive,
        Verdict::Refused(_) => Exit::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell<'a>(role: Role, verdict: &'a Verdict) -> RollUpCell<'a> {
        RollUpCell {
            id: "cell",
            role,
            verdict,
            lost_on_a_mounted_image: *verdict == Verdict::Violated,
        }
    }

    fn inconclusive() -> Verdict {
        Verdict::Inconclusive(InconclusiveReason::NothingAcknowledged)
    }

    #[test]
    fn the_worst_subject_decides() {
        let (upheld, violated, open) = (Verdict::Upheld, Verdict::Violated, inconclusive());
        let s = Role::Subject;
        assert_eq!(
            roll_up(&[cell(s, &upheld), cell(s, &violated), cell(s, &open)]),
            violated
        );
        assert_eq!(roll_up(&[cell(s, &upheld), cell(s, &open)]), open);
        assert_eq!(roll_up(&[cell(s, &upheld)]), upheld);
    }

    #[test]
    fn a_refused_subject_changes_nothing_unless_all_are() {
        let (upheld, refused) = (Verdict::Upheld, Verdict::Refused("no".into()));
        let s = Role::Subject;
        assert_eq!(roll_up(&[cell(s, &upheld), cell(s, &refused)]), upheld);
        assert_eq!(roll_up(&[cell(s, &refused)]), refused);
        assert_eq!(exit_of(&refused), Exit::Refused);
    }

    #[test]
    fn a_control_that_passes_where_it_must_fail_spoils_an_upheld_subject() {
        let (upheld, violated) = (Verdict::Upheld, Verdict::Violated);
        let run = [cell(Role::Subject, &upheld), cell(Role::MustFail, &upheld)];
        assert_eq!(exit_of(&roll_up(&run)), Exit::Inconclusive);
        let run = [
            cell(Role::Subject, &violated),
            cell(Role::MustFail, &upheld),
        ];
        assert_eq!(exit_of(&roll_up(&run)), Exit::Violated);
    }

    #[test]
    fn a_must_fail_control_that_only_fails_to_mount_does_not_count() {
        let (upheld, violated) = (Verdict::Upheld, Verdict::Violated);
        let mut control = cell(Role::MustFail, &violated);
        control.lost_on_a_mounted_image = false;
        assert_eq!(
            exit_of(&roll_up(&[cell(Role::Subject, &upheld), control])),
            Exit::Inconclusive
        );
    }

    #[test]
    fn a_must_pass_control_that_is_violated_spoils_an_upheld_subject() {
        let (upheld, violated) = (Verdict::Upheld, Verdict::Violated);
        let run = [
            cell(Role::Subject, &upheld),
            cell(Role::MustPass, &violated),
        ];
        assert_eq!(exit_of(&roll_up(&run)), Exit::Inconclusive);
    }

    #[test]
    fn a_run_without_subjects_is_no_pass() {
        assert_eq!(exit_of(&roll_up(&[])), Exit::Inconclusive);
    }
}
