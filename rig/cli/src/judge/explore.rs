//! From a recorded trial to a cell's verdict.

use std::collections::{BTreeMap, HashMap};

use num_bigint::BigUint;
use plugpull_crash::log::index::Kind;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::state::enumerate::{CutStates, Limits, crash_states};
use plugpull_crash::state::explorer::{Explorer, replay_to_base, unit_bytes};
use plugpull_crash::state::{CrashState, ImageId};
use plugpull_model::coverage::Coverage;
use plugpull_model::drive::{DriveSettings, Honesty};
use plugpull_model::ledger::{Ledger, LedgerLine, OperationId};
use plugpull_model::plan::{Plan, PlannedCell};
use plugpull_model::stack::Filesystem;
use plugpull_model::units::{Position, Sequence};
use plugpull_model::verdict::{Breach, Cause, FindingKind, InconclusiveReason, Verdict};
use plugpull_record::RunId;
use plugpull_verify::{Inspection, judge};

use crate::context::Context;
use crate::error::{RunError, kernel_error};
use crate::trial::Trial;

use super::cause::cause;
use super::ext4::{Ext4Observer, Watch};
use super::raw::RawObserver;
use super::workers::{Job, Outcome, Pool, Shared};
use super::{Observer, Sabotage};

/// Most findings of one kind and cell that are kept whole; the rest is counted.
pub const MAX_WHOLE_FINDINGS: u64 = 5;

/// A breach on one image at one cut.
#[derive(Clone, Debug)]
pub struct Found {
    /// The cut.
    pub cut: Position,
    /// The image.
    pub image: ImageId,
    /// What the image holds, in words.
    pub state: String,
    /// The breach.
    pub breach: Breach,
    /// Why.
    pub cause: Cause,
}

/// How far judging has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The current cut.
    pub position: u64,
    /// The last cut.
    pub last: u64,
    /// Images recovered.
    pub images: u64,
    /// (image, cut) pairs with a breach.
    pub findings: u64,
}

/// What judging a trial gave.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The cell's own verdict.
    pub verdict: Verdict,
    /// Coverage.
    pub coverage: Coverage,
    /// (image, cut) pairs with a breach, by kind.
    pub findings: BTreeMap<FindingKind, u64>,
    /// The same for losses inside the contract.
    pub contractual: BTreeMap<FindingKind, u64>,
    /// Whether an acknowledged record was lost on an image that mounted.
    pub lost_on_a_mounted_image: bool,
}

/// What is asked of a judgement.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its cell.
    pub cell: &'a PlannedCell,
    /// The plan's run id.
    pub run: RunId,
    /// The recorded trial.
    pub trial: &'a Trial,
    /// A fault of the rig itself.
    pub sabotage: Sabotage,
    /// Only this image at this cut, if given.
    pub only: Option<(Position, ImageId)>,
}

enum Known {
    /// Being recovered; the cuts that wait for it.
    Pending { cuts: Vec<Position>, state: String },
    /// Recovered.
    Done {
        inspection: Box<Inspection>,
        state: String,
        verdict: Option<Vec<Breach>>,
    },
    /// Could not be.
    Failed,
}

/// Judges every cut of a trial. `found` gets breaches as they are found, the
/// first few of each kind; `progress` is called often.
///
/// # Errors
/// When the rig cannot do its job, or is stopped.
pub fn explore(
    context: &Context,
    question: &Question<'_>,
    found: &mut dyn FnMut(Found) -> Result<(), RunError>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Judged, RunError> {
    let cell = question.cell;
    let recording = &question.trial.recording;
    let settings = sabotaged_drive(&cell.drive, question.sabotage);
    let ledger = sabotaged_ledger(&question.trial.ledger, question.sabotage);
    let size = recording.header().device_bytes;
    let memory = kernel_error("cannot make memory for the image at base");
    let base = SharedMemory::new("plugpull-base", size).map_err(memory)?;
    replay_to_base(recording, &settings, &base);
    let unit = unit_bytes(&settings);
    let watches: Vec<Watch> = (0..context.jobs).map(|_| Watch::default()).collect();
    let mut observers: Vec<Box<dyn Observer + '_>> = Vec::new();
    for watch in &watches {
        let memory = kernel_error("cannot make memory for a crash image");
        observers.push(match cell.stack.filesystem {
            Filesystem::None => {
                let mut observer =
                    RawObserver::new(cell, question.run, recording, &base, unit).map_err(memory)?;
                if question.sabotage == Sabotage::PagesNotRestored {
                    observer.break_restore();
                }
                Box::new(observer)
            }
            Filesystem::Ext4 => Box::new(
                Ext4Observer::new(context, cell, question.run, recording, &base, unit, watch)
                    .map_err(memory)?,
            ),
        });
    }
    let shared = Shared::new();
    let explorer = Explorer::new(recording, &settings, &base, cell.faults_seed);
    let hang_after =
        std::time::Duration::from_millis(u64::from(question.plan.budget.hang_after_ms));
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                for watch in &watches {
                    watch.check(hang_after);
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let pool = Pool::start(scope, &shared, observers, cell, question.run);
        let mut judging = Judging {
            question,
            settings: &settings,
            ledger: &ledger,
            images: HashMap::new(),
            tally: Tally::default(),
            found,
            failure: None,
        };
        let outcome = walk(context, question, explorer, pool, &mut judging, progress);
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome?;
        judging.judged()
    })
}

/// Walks every cut, hands images to the pool and lets `judging` judge.
fn walk(
    context: &Context,
    question: &Question<'_>,
    mut explorer: Explorer<'_>,
    mut pool: Pool<'_>,
    judging: &mut Judging<'_, '_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), RunError> {
    let budget = question.plan.budget;
    let mut limits = Limits {
        exhaustive: budget.exhaustive_states_per_cut,
        sampled: budget.sampled_states_per_cut,
    };
    if let Some((cut, _)) = question.only {
        limits.sampled = limits.sampled.max(1);
        while explorer.position() < cut.0 {
            explorer.step();
        }
    }
    let last = last_cut(question, judging.ledger);
    let mut handed_out = 0u64;
    let mut possible = BigUint::ZERO;
    let mut outcome = Ok(());
    while explorer.position() <= last {
        if context.stopped() {
            outcome = Err(RunError::Interrupted);
            break;
        }
        let cut = Position(explorer.position());
        let mut states = crash_states(&mut explorer, limits, question.cell.states_seed);
        sabotage_states(&mut states, question.sabotage);
        if let Some((_, image)) = question.only {
            states.states.retain(|state| state.image == image);
        }
        possible += &states.possible;
        pool.extend_changes(explorer.changes());
        let mut covered_whole = true;
        for state in states.states {
            let room = handed_out < u64::from(budget.images_per_cell);
            match judging.meet(cut, &state, room, question)? {
                Met::Known => {}
                Met::NoRoom => covered_whole = false,
                Met::New => {
                    let deep = question.only.is_some()
                        || handed_out.is_multiple_of(u64::from(budget.use_every));
                    handed_out += 1;
                    let job = Job {
                        changes: explorer.changes().len(),
                        state,
                        deep,
                    };
                    pool.submit(job, |outcome| judging.take(outcome));
                }
            }
        }
        judging.tally.cut(states.exhaustive, covered_whole);
        progress(Progress {
            position: cut.0,
            last,
            images: judging.tally.checked,
            findings: judging.tally.findings.values().sum(),
        });
        if let Some(failure) = judging.failure.take() {
            outcome = Err(failure);
            break;
        }
        if question.only.is_some() {
            break;
        }
        explorer.step();
    }
    judging.tally.possible = possible;
    judging.tally.max_depth = question.trial.recording.header().max_depth;
    let never_came = pool.finish(|outcome| judging.take(outcome));
    if never_came > 0 {
        judging.tally.unjudged(
            never_came as u64,
            "a worker of the rig crashed; this is a bug of plugpull",
        );
    }
    if let Some(failure) = judging.failure.take() {
        return Err(failure);
    }
    outcome
}

fn last_cut(question: &Question<'_>, ledger: &Ledger) -> u64 {
    let last = question.trial.summary.last_acknowledgement.0;
    if question.sabotage == Sabotage::CutsTooEarly {
        let first = ledger.marks().first().map_or(0, |(at, _)| at.0);
        return last.min(first.saturating_sub(1));
    }
    last
}

enum Met {
    Known,
    New,
    NoRoom,
}

#[derive(Debug, Default)]
struct Tally {
    cut_points: u64,
    sampled: u64,
    uncovered: u64,
    covered: u64,
    checked: u64,
    used: u64,
    possible: BigUint,
    max_depth: u32,
    acknowledged_cut: bool,
    findings: BTreeMap<FindingKind, u64>,
    contractual: BTreeMap<FindingKind, u64>,
    lost_on_a_mounted_image: bool,
    unjudged: u64,
    first_unjudged: Option<String>,
}

impl Tally {
    fn cut(&mut self, exhaustive: bool, covered_whole: bool) {
        self.cut_points += 1;
        self.sampled += u64::from(!exhaustive);
        self.uncovered += u64::from(!covered_whole);
    }

    fn unjudged(&mut self, images: u64, why: &str) {
        self.unjudged += images;
        self.first_unjudged.get_or_insert_with(|| why.to_owned());
    }
}

struct Judging<'a, 'f> {
    question: &'a Question<'a>,
    settings: &'a DriveSettings,
    ledger: &'a Ledger,
    // Keyed access only, never iterated.
    images: HashMap<ImageId, Known>,
    tally: Tally,
    found: &'f mut dyn FnMut(Found) -> Result<(), RunError>,
    failure: Option<RunError>,
}

impl Judging<'_, '_> {
    /// A state turns up at a cut.
    fn meet(
        &mut self,
        cut: Position,
        state: &CrashState,
        room: bool,
        question: &Question<'_>,
    ) -> Result<Met, RunError> {
        let image = if question.sabotage == Sabotage::ImagesConfused {
            ImageId(0)
        } else {
            state.image
        };
        match self.images.remove(&image) {
            Some(Known::Pending { mut cuts, state }) => {
                cuts.push(cut);
                self.images.insert(image, Known::Pending { cuts, state });
                Ok(Met::Known)
            }
            Some(Known::Done {
                inspection,
                state,
                mut verdict,
            }) => {
                self.judge(cut, image, &inspection, &state, &mut verdict)?;
                self.images.insert(
                    image,
                    Known::Done {
                        inspection,
                        state,
                        verdict,
                    },
                );
                Ok(Met::Known)
            }
            Some(Known::Failed) => {
                self.images.insert(image, Known::Failed);
                self.tally
                    .unjudged(1, "the image could not be recovered at an earlier cut");
                Ok(Met::Known)
            }
            None if !room => Ok(Met::NoRoom),
            None => {
                let words = in_words(state, self.settings);
                self.images.insert(
                    image,
                    Known::Pending {
                        cuts: vec![cut],
                        state: words,
                    },
                );
                Ok(Met::New)
            }
        }
    }

    /// A worker is done with an image.
    fn take(&mut self, outcome: Outcome) {
        let confused = self.question.sabotage == Sabotage::ImagesConfused;
        let image = if confused { ImageId(0) } else { outcome.image };
        self.tally.checked += 1;
        self.tally.used +=
            u64::from(outcome.deep && outcome.inspection.as_ref().is_ok_and(Inspection::is_used));
        let Some(Known::Pending { cuts, state }) = self.images.remove(&image) else {
            return;
        };
        let inspection = match outcome.inspection {
            Ok(_) if self.question.sabotage == Sabotage::ObserverFails => {
                Err("planted: the observer fails".to_owned())
            }
            other => other,
        };
        match inspection {
            Ok(inspection) => {
                let mut verdict = None;
                for cut in cuts {
                    if let Err(failure) = self.judge(cut, image, &inspection, &state, &mut verdict)
                    {
                        self.failure.get_or_insert(failure);
                    }
                }
                self.images.insert(
                    image,
                    Known::Done {
                        inspection: Box::new(inspection),
                        state,
                        verdict,
                    },
                );
            }
            Err(why) => {
                self.tally.unjudged(1, &why);
                self.images.insert(image, Known::Failed);
            }
        }
    }

    fn judge(
        &mut self,
        cut: Position,
        image: ImageId,
        inspection: &Inspection,
        state: &str,
        cached: &mut Option<Vec<Breach>>,
    ) -> Result<(), RunError> {
        let cell = self.question.cell;
        self.tally.covered += 1;
        self.tally.acknowledged_cut |= self.ledger.marks_before(cut);
        let breaches = match cached {
            Some(breaches) if self.question.sabotage == Sabotage::VerdictsCached => {
                breaches.clone()
            }
            _ => judge(
                cell,
                &self.question.plan.contract,
                self.ledger,
                inspection,
                cut,
                cut_time_ns(self.question.trial, cut),
            ),
        };
        if self.question.sabotage == Sabotage::VerdictsCached {
            cached.get_or_insert_with(|| breaches.clone());
        }
        let mut kinds: BTreeMap<FindingKind, &Breach> = BTreeMap::new();
        let mut contractual: BTreeMap<FindingKind, &Breach> = BTreeMap::new();
        for breach in &breaches {
            let map = if breach.contractual {
                &mut contractual
            } else {
                &mut kinds
            };
            map.entry(breach.kind).or_insert(breach);
        }
        for kind in contractual.keys() {
            *self.tally.contractual.entry(*kind).or_default() += 1;
        }
        for (kind, breach) in kinds {
            if inspection.is_recovered() && breach.record.is_some() {
                self.tally.lost_on_a_mounted_image = true;
            }
            let count = self.tally.findings.entry(kind).or_default();
            *count += 1;
            if *count <= MAX_WHOLE_FINDINGS {
                let issued = breach.record.as_ref().and_then(|record| {
                    let id = OperationId {
                        stream: record.stream,
                        sequence: record.sequence,
                        version: record.version,
                    };
                    self.ledger.get(&id).map(|state| state.issued_at)
                });
                (self.found)(Found {
                    cut,
                    image,
                    state: state.to_owned(),
                    cause: cause(&self.question.trial.recording, &cell.drive, breach, issued),
                    breach: breach.clone(),
                })?;
            }
        }
        Ok(())
    }

    fn judged(self) -> Result<Judged, RunError> {
        let tally = self.tally;
        let verdict = if !tally.findings.is_empty() {
            Verdict::Violated
        } else if tally.unjudged > 0 {
            Verdict::Inconclusive(InconclusiveReason::Unjudged {
                images: tally.unjudged,
                first: tally.first_unjudged.unwrap_or_default(),
            })
        } else if !tally.acknowledged_cut {
            Verdict::Inconclusive(InconclusiveReason::NothingAcknowledged)
        } else if let Some(what) = never_exercised(self.question) {
            Verdict::Inconclusive(InconclusiveReason::NeverExercised(what))
        } else {
            Verdict::Upheld
        };
        Ok(Judged {
            verdict,
            coverage: Coverage {
                cut_points: tally.cut_points,
                possible: tally.possible.to_string(),
                covered: tally.covered,
                checked: tally.checked,
                used: tally.used,
                exhaustive: tally.sampled == 0 && tally.uncovered == 0 && tally.unjudged == 0,
                sampled_cut_points: tally.sampled,
                uncovered_cut_points: tally.uncovered,
                max_depth: tally.max_depth,
            },
            findings: tally.findings,
            contractual: tally.contractual,
            lost_on_a_mounted_image: tally.lost_on_a_mounted_image,
        })
    }
}

/// What the cell claims to test and its recording never did.
fn never_exercised(question: &Question<'_>) -> Option<String> {
    let cell = question.cell;
    let summary = &question.trial.summary;
    let count = |kind: Kind| summary.commands.get(kind.name()).copied().unwrap_or(0);
    if cell.drive.fua == Honesty::Ignored
        && cell.drive.flush == Honesty::Honoured
        && count(Kind::WriteFua) == 0
    {
        return Some("FUA, which the drive is set to ignore".to_owned());
    }
    if cell.drive.flush == Honesty::Ignored && count(Kind::Flush) == 0 && count(Kind::WriteFua) == 0
    {
        return Some("FLUSH, which the drive is set to ignore".to_owned());
    }
    if cell.workload.writers.len() > 1 && summary.max_depth < 2 {
        return Some("a depth above 1, which several writers claim".to_owned());
    }
    None
}

/// The time of a cut: that of the last completion before it.
fn cut_time_ns(trial: &Trial, cut: Position) -> u64 {
    let commands = trial.recording.commands();
    let at = commands.partition_point(|command| command.completed < cut.0);
    at.checked_sub(1)
        .map_or(0, |index| commands[index].completed_ns)
}

/// What an image holds beyond what is durable, in words.
fn in_words(state: &CrashState, settings: &DriveSettings) -> String {
    const MOST: usize = 12;
    if state.overrides.is_empty() {
        return "nothing that was pending survived".to_owned();
    }
    let sectors = unit_bytes(settings) / 512;
    let mut words: Vec<String> = state
        .overrides
        .iter()
        .take(MOST)
        .map(|(unit, _)| format!("{}+{sectors}", unit * sectors))
        .collect();
    if state.overrides.len() > MOST {
        words.push(format!("and {} more", state.overrides.len() - MOST));
    }
    format!("pending writes survived at sectors {}", words.join(", "))
}

fn sabotaged_drive(drive: &DriveSettings, sabotage: Sabotage) -> DriveSettings {
    let mut drive = drive.clone();
    match sabotage {
        Sabotage::FlushNotHonoured => drive.flush = Honesty::Ignored,
        Sabotage::NoTears => drive.atomic_write_bytes = u32::MAX,
        _ => {}
    }
    drive
}

fn sabotage_states(states: &mut CutStates, sabotage: Sabotage) {
    if sabotage == Sabotage::AllKeptOnly {
        // The state that keeps most: with honest chains, everything newest.
        if let Some(most) = states
            .states
            .iter()
            .max_by_key(|state| state.overrides.len())
            .cloned()
        {
            states.states = vec![most];
        }
    }
}

/// The ledger as a broken rig would hand it to the oracle.
fn sabotaged_ledger(ledger: &Ledger, sabotage: Sabotage) -> Ledger {
    if !matches!(
        sabotage,
        Sabotage::AcknowledgementsDropped | Sabotage::AcknowledgedEarly
    ) {
        return ledger.clone();
    }
    let mut out = Ledger::default();
    // The lines come from a sound ledger, in its own order: none contradicts another.
    for (id, state) in ledger.iter() {
        let _ = out.push(LedgerLine::Issued {
            operation: *id,
            at: state.issued_at,
            time_ns: state.issued_ns,
        });
        if let (Some(acknowledged), Sabotage::AcknowledgedEarly) = (state.acknowledged, sabotage) {
            let before = OperationId {
                sequence: Sequence(id.sequence.0.saturating_sub(1)),
                ..*id
            };
            let at = ledger
                .get(&before)
                .and_then(|state| state.acknowledged)
                .map_or(acknowledged.at, |before| before.at)
                .max(state.issued_at);
            let _ = out.push(LedgerLine::Acknowledged {
                operation: *id,
                at,
                time_ns: acknowledged.time_ns,
                latency_ns: 0,
            });
        }
    }
    let _ = out.push(LedgerLine::Complete {
        at: Position(u64::MAX),
    });
    out
}
