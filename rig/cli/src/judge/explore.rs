//! From a recorded trial to a cell's verdict.

use std::collections::BTreeMap;

use num_bigint::BigUint;
use plugpull_crash::log::index::Kind;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::state::ImageId;
use plugpull_crash::state::enumerate::{Limits, crash_states};
use plugpull_crash::state::explorer::{Explorer, replay_to_base, unit_bytes};
use plugpull_model::coverage::Coverage;
use plugpull_model::drive::{Honesty, PlantedFault};
use plugpull_model::ledger::Ledger;
use plugpull_model::plan::{Plan, PlannedCell};
use plugpull_model::scenario::Budget;
use plugpull_model::stack::Filesystem;
use plugpull_model::units::Position;
use plugpull_model::verdict::{Breach, Cause, Explanation, FindingKind, Verdict};
use plugpull_record::RunId;

use crate::context::{Context, SetOnDrop};
use crate::error::{RunError, kernel_error};
use crate::trial::Trial;

use super::explaining::{Scene, explain_all};
use super::ext4::{Ext4Observer, Watch};
use super::judging::{Judging, Met};
use super::raw::RawObserver;
use super::sabotage::{sabotage_states, sabotaged_drive, sabotaged_ledger};
use super::workers::{Job, Pool, Shared};
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
    /// Why, as far as the log shows without trying anything.
    pub cause: Cause,
    /// The first finding of each kind is told twice: when it is found, and
    /// once more when it is explained.
    pub explanation: Option<Explanation>,
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
    let watches: Vec<Watch> = (0..context.jobs).map(|_| Watch::default()).collect();
    let hang_after =
        std::time::Duration::from_millis(u64::from(question.plan.budget.hang_after_ms));
    let mut observers = Vec::new();
    for watch in &watches {
        observers.push(observer(context, question, &base, watch, hang_after)?);
    }
    let shared = Shared::new();
    let explorer = Explorer::new(recording, &settings, &base, cell.faults_seed);
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                for watch in &watches {
                    watch.check(2 * hang_after);
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let end_watch = SetOnDrop(&ended);
        let pool = Pool::start(scope, &shared, observers, cell, question.run);
        let mut judging = Judging::new(question, &settings, &ledger, found);
        let outcome = walk(context, question, explorer, pool, &mut judging, progress);
        outcome?;
        let open = std::mem::take(&mut judging.unexplained);
        if question.only.is_none() && !open.is_empty() {
            let scene = Scene {
                question,
                settings: &settings,
                ledger: &ledger,
                base: &base,
            };
            let mut observer = observer(context, question, &base, &watches[0], hang_after)?;
            explain_all(
                context,
                &scene,
                observer.as_mut(),
                open,
                &mut *judging.found,
            )?;
        }
        drop(end_watch);
        judging.judged()
    })
}

/// An observer of the question's stack.
fn observer<'a>(
    context: &'a Context,
    question: &Question<'a>,
    base: &'a SharedMemory,
    watch: &'a Watch,
    hang_after: std::time::Duration,
) -> Result<Box<dyn Observer + 'a>, RunError> {
    let memory = kernel_error("cannot make memory for a crash image");
    let (cell, recording) = (question.cell, &question.trial.recording);
    Ok(match cell.stack.filesystem {
        Filesystem::None => {
            let unit = unit_bytes(&cell.drive);
            let mut observer =
                RawObserver::new(cell, question.run, recording, base, unit).map_err(memory)?;
            if question.sabotage == Sabotage::PagesNotRestored {
                observer.break_restore();
            }
            Box::new(observer)
        }
        Filesystem::Ext4 => Box::new(
            Ext4Observer::new(
                context,
                cell,
                question.run,
                recording,
                base,
                watch,
                hang_after,
            )
            .map_err(memory)?,
        ),
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
    let limits = Limits {
        exhaustive: budget.exhaustive_states_per_cut,
        sampled: budget.sampled_states_per_cut,
    };
    if let Some((cut, _)) = question.only {
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
        let cut_limits = match question.only {
            // A larger sample begins with the smaller one, so that whatever the
            // run saw here is among these.
            Some(_) => limits,
            None => within_budget(limits, &budget, handed_out, last - cut.0),
        };
        let mut states = crash_states(&mut explorer, cut_limits, question.cell.states_seed);
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
    judging.tally.max_depth = question.trial.summary.max_depth;
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
    // What was read of a log that can no longer be read is void.
    question.trial.recording.trouble()?;
    outcome
}

/// Spreads what is left of the images over the cuts that are left, so that no
/// cut goes without: each sampled one gets its share, and an exhaustive one
/// leaves two images (all lost, all kept) for every later cut.
fn within_budget(limits: Limits, budget: &Budget, handed_out: u64, cuts_left: u64) -> Limits {
    let left = u64::from(budget.images_per_cell).saturating_sub(handed_out);
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Limits {
        exhaustive: limits
            .exhaustive
            .min(narrow(left.saturating_sub(cuts_left.saturating_mul(2)))),
        sampled: limits
            .sampled
            .min(narrow((left / cuts_left.saturating_add(1)).max(2))),
    }
}

fn last_cut(question: &Question<'_>, ledger: &Ledger) -> u64 {
    // cut.json is a file that somebody may have edited: nothing lies behind the log.
    let end = question
        .trial
        .recording
        .commands()
        .last()
        .map_or(0, |command| command.completed + 1);
    let last = question.trial.summary.last_acknowledgement.0.min(end);
    if question.sabotage == Sabotage::CutsTooEarly {
        let first = ledger.marks().first().map_or(0, |(at, _)| at.0);
        return last.min(first.saturating_sub(1));
    }
    last
}

/// What the cell claims to test and its recording never did.
pub(super) fn never_exercised(question: &Question<'_>) -> Option<String> {
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
    let failed = question
        .trial
        .recording
        .commands()
        .iter()
        .any(|command| command.errno != 0);
    let window = cell.drive.faults.iter().any(|fault| {
        matches!(
            fault,
            PlantedFault::WriteEio { .. }
                | PlantedFault::WriteEnospc { .. }
                | PlantedFault::DeadDevice { .. }
        )
    });
    if window && !failed {
        return Some("a command in the window of the planted errors".to_owned());
    }
    let planted = |fault: PlantedFault| cell.drive.faults.contains(&fault);
    if planted(PlantedFault::Unserializable) && count(Kind::Flush) == 0 {
        return Some("FLUSH, which the planted fault `unserializable` acts on".to_owned());
    }
    if cell.workload.writers.len() > 1 && summary.max_depth < 2 {
        return Some("a depth above 1, which several writers claim".to_owned());
    }
    None
}
