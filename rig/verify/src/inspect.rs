//! From an observation to what judgements need of it.

use plugpull_model::ledger::OperationId;
use plugpull_model::observation::{CheckerOutcome, Observation, RecoveryOutcome, UseAfterRecovery};
use plugpull_model::plan::PlannedCell;
use plugpull_model::seams::Recovered;
use plugpull_model::units::{Sequence, StreamId};
use plugpull_record::{Class, RunId};

use crate::look::{Look, PLANNED_VERSION, Sighting, look, operation, stream_of};
use crate::words::{bounded, error_words};

/// Most records out of nowhere that are named; more add nothing.
const MAX_INVENTED: usize = 64;

/// What one crash image holds, as far as a judgement needs it: for every planned record what lies at
/// its place, where the workload's own recovery disagrees, and the words of whatever failed. It holds
/// no bytes of the image, and its size grows with the number of *changes* along a stream.
///
/// Only [`judge`](crate::judge()) reads it, with the cell it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    pub(crate) outcome: Outcome,
    /// What the kernel log says of faults.
    pub(crate) kernel_faults: Option<String>,
    /// Right after recovery.
    pub(crate) first: Look,
    /// Records that the workload's recovery gave back though they are not intact, and those that it
    /// did not give back though they are; sorted.
    pub(crate) disagreements: Vec<(StreamId, u32)>,
    /// Records given back that the plan cannot issue.
    pub(crate) invented: Vec<OperationId>,
    pub(crate) used: Option<Used>,
}

/// How recovery ended, and in what words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Recovered,
    Unmountable(String),
    Hung(String),
}

/// The second look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// `None` when it is the same as the first.
    pub(crate) look: Option<Look>,
    /// Damage that the checker found.
    pub(crate) damage: Option<String>,
    pub(crate) failed: Option<UseFailure>,
}

/// Why the second look failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UseFailure {
    /// No object could be read after it: the stack no longer came up.
    pub(crate) down: bool,
    pub(crate) words: String,
}

impl Inspection {
    /// Whether the stack came up again, so that its records could be judged.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.outcome == Outcome::Recovered
    }

    /// Whether the recovered stack was used once more.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.used.is_some()
    }

    /// Whether the workload's recovery and the raw bytes disagree on this record.
    pub(crate) fn disagrees(&self, stream: StreamId, sequence: u32) -> bool {
        self.disagreements
            .binary_search(&(stream, sequence))
            .is_ok()
    }
}

/// Reads an observation of a crash image of `cell`, whose records carry `run`. Total: it takes bytes of
/// any length and never panics.
///
/// An object that the observation does not list is taken for missing; in the second look only when
/// nothing of it failed, since a failure may end it early.
#[must_use]
pub fn inspect(cell: &PlannedCell, run: RunId, observation: &Observation) -> Inspection {
    let faults = &observation.kernel_faults;
    let mut inspection = Inspection {
        outcome: outcome(observation),
        kernel_faults: (!faults.is_empty()).then(|| bounded(faults.iter().map(String::as_str))),
        first: Look::new(),
        disagreements: Vec::new(),
        invented: Vec::new(),
        used: None,
    };
    if !inspection.is_recovered() {
        return inspection;
    }
    inspection.first = look(cell, run, &observation.objects, Sighting::Unlisted);
    inspection.disagreements = disagreements(&mut inspection.first, &observation.recovered);
    inspection.invented = invented(&inspection.first, &observation.recovered);
    inspection.used = observation
        .used
        .as_ref()
        .map(|used| second_look(cell, run, used, &inspection.first));
    inspection
}

fn outcome(observation: &Observation) -> Outcome {
    let messages = observation.messages.iter().map(String::as_str);
    match &observation.recovery {
        RecoveryOutcome::Recovered => Outcome::Recovered,
        RecoveryOutcome::MountFailed { errno } => {
            let failed = format!("mount failed: {}", error_words(*errno));
            Outcome::Unmountable(bounded(std::iter::once(failed.as_str()).chain(messages)))
        }
        RecoveryOutcome::StepFailed { step, code, output } => {
            let failed = format!("`{step}` failed: {}", exit_words(*code));
            let words = [failed.as_str(), output.as_str()];
            Outcome::Unmountable(bounded(words.into_iter().chain(messages)))
        }
        RecoveryOutcome::Hung => {
            let hung = "recovery did not end in time and was freed by force";
            Outcome::Hung(bounded(std::iter::once(hung).chain(messages)))
        }
    }
}

fn exit_words(code: Option<i32>) -> String {
    code.map_or_else(
        || "ended by a signal".to_owned(),
        |code| format!("exit code {code}"),
    )
}

/// Compares what was given back with the raw bytes, both ways.
fn disagreements(first: &mut Look, recovered: &Recovered) -> Vec<(StreamId, u32)> {
    let mut found = Vec::new();
    for seen in first {
        let stream = seen.stream;
        for run in &seen.runs {
            let sequences = run.sequences();
            if run.sighting.is_intact() {
                for sequence in sequences {
                    if recovered.records.contains(&operation(stream, sequence)) {
                        seen.last_given_back = Some(sequence);
                    } else {
                        found.push((stream, sequence));
                    }
                }
            } else {
                let from = operation(stream, sequences.start);
                let to = operation(stream, sequences.end);
                found.extend(
                    recovered
                        .records
                        .range(from..to)
                        .filter(|id| id.version == PLANNED_VERSION)
                        .filter_map(|id| u32::try_from(id.sequence.0).ok())
                        .map(|sequence| (stream, sequence)),
                );
            }
        }
    }
    found
}

fn invented(first: &Look, recovered: &Recovered) -> Vec<OperationId> {
    recovered
        .records
        .iter()
        .filter(|id| {
            let sighting = planned_sighting(first, id.stream, id.sequence);
            match sighting {
                None => true,
                // The raw bytes hold just that: it is judged there.
                Some(Sighting::Read(Class::Newer { version })) if *version == id.version => false,
                Some(_) => id.version != PLANNED_VERSION,
            }
        })
        .take(MAX_INVENTED)
        .copied()
        .collect()
}

fn planned_sighting(look: &Look, stream: StreamId, sequence: Sequence) -> Option<&Sighting> {
    stream_of(look, stream)?.at(u32::try_from(sequence.0).ok()?)
}

fn second_look(cell: &PlannedCell, run: RunId, used: &UseAfterRecovery, first: &Look) -> Used {
    let unlisted = if used.failed.is_some() {
        Sighting::NotReached
    } else {
        Sighting::Unlisted
    };
    let second = look(cell, run, &used.objects, unlisted);
    Used {
        look: differs(&second, first).then_some(second),
        damage: used
            .checker
            .as_ref()
            .filter(|checker| checker.damage)
            .map(damage_words),
        failed: used.failed.as_ref().map(|failed| UseFailure {
            down: used.objects.is_empty(),
            words: bounded(["use after recovery failed", failed.as_str()]),
        }),
    }
}

fn differs(second: &Look, first: &Look) -> bool {
    !second
        .iter()
        .map(|seen| &seen.runs)
        .eq(first.iter().map(|seen| &seen.runs))
}

fn damage_words(checker: &CheckerOutcome) -> String {
    let found = format!(
        "`{}` found damage: {}",
        checker.command,
        exit_words(checker.code)
    );
    bounded([found.as_str(), checker.output.as_str()])
}
