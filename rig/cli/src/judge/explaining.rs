//! The second pass over a judged trial: the first finding of each kind is
//! reduced and explained.

use plugpull_crash::log::reader::Recording;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::state::explorer::{Explorer, unit_bytes};
use plugpull_crash::state::minimise::minimise;
use plugpull_model::drive::DriveSettings;
use plugpull_model::ledger::{Ledger, OperationId};
use plugpull_model::units::Position;
use plugpull_model::verdict::Breach;
use plugpull_verify::{inspect, judge};

use crate::context::Context;
use crate::error::RunError;

use super::Observer;
use super::explain::{Evidence, Subject, SubjectRecord, explain};
use super::explore::{Found, Question};
use super::judging::{Unexplained, cut_time_ns};

/// Most crash images that are judged to reduce one finding.
const MAX_TRIED: u32 = 200;

/// What was judged.
pub(super) struct Scene<'a> {
    pub(super) question: &'a Question<'a>,
    pub(super) settings: &'a DriveSettings,
    pub(super) ledger: &'a Ledger,
    pub(super) base: &'a SharedMemory,
}

/// Reduces and explains each finding and tells it once more. Images that the
/// observer cannot judge count as passing: the reduction then ends early.
pub(super) fn explain_all(
    context: &Context,
    scene: &Scene<'_>,
    observer: &mut dyn Observer,
    mut open: Vec<Unexplained>,
    found: &mut dyn FnMut(Found) -> Result<(), RunError>,
) -> Result<(), RunError> {
    // The explorer and the observer go forward only.
    open.sort_by_key(|one| one.found.cut);
    let question = scene.question;
    let recording = &question.trial.recording;
    let mut explorer = Explorer::new(
        recording,
        scene.settings,
        scene.base,
        question.cell.faults_seed,
    );
    let mut applied = 0;
    for one in open {
        if one.state.planted.is_some() {
            // The damage is the cause, and no choice of survivors.
            continue;
        }
        while explorer.position() < one.found.cut.0 {
            explorer.step();
        }
        let changes = explorer.changes().to_vec();
        let wanted = &one.found.breach;
        let mut fails = |state: &plugpull_crash::state::CrashState| -> Result<bool, RunError> {
            context.go_on()?;
            let fresh = &changes[applied..];
            let Ok(observation) = observer.observe(fresh, state, wanted.after_recovery) else {
                return Ok(false);
            };
            applied = changes.len();
            let inspection = inspect(question.cell, question.run, &observation);
            let breaches = judge(
                question.cell,
                &question.plan.contract,
                scene.ledger,
                &inspection,
                one.found.cut,
                cut_time_ns(question.trial, one.found.cut),
            );
            Ok(breaches.iter().any(|breach| is_same(breach, wanted)))
        };
        let Some(minimal) = minimise(&mut explorer, &one.state, MAX_TRIED, &mut fails)? else {
            continue;
        };
        let subject = subject(scene, &one.found);
        let evidence = Evidence {
            recording,
            settings: scene.settings,
            unit_bytes: unit_bytes(scene.settings),
            entry: &|command| entry_of(recording, scene.ledger, command),
            mark: &|at| Some(entry_of_mark(recording, scene.ledger, at)),
            options: &question.trial.summary.requested_options,
        };
        let explanation = explain(&evidence, &subject, &minimal);
        found(Found {
            cause: explanation.cause,
            explanation: Some(explanation),
            ..one.found
        })?;
    }
    Ok(())
}

fn is_same(breach: &Breach, wanted: &Breach) -> bool {
    breach.kind == wanted.kind
        && breach.record == wanted.record
        && breach.object == wanted.object
        && breach.contractual == wanted.contractual
}

fn subject(scene: &Scene<'_>, found: &Found) -> Subject {
    let record = found.breach.record.as_ref().and_then(|record| {
        let id = OperationId {
            stream: record.stream,
            sequence: record.sequence,
            version: record.version,
        };
        let state = scene.ledger.get(&id)?;
        Some(SubjectRecord {
            stamp: (
                scene.question.run,
                record.stream.0,
                record.sequence.0,
                record.version,
            ),
            issued: state.issued_at,
            acknowledged: state.acknowledged.map(|acknowledged| acknowledged.at),
        })
    });
    Subject {
        kind: found.breach.kind,
        after_recovery: found.breach.after_recovery,
        record,
        cut: found.cut,
    }
}

/// The number of a command among the entries of our own log, which also holds
/// the `base` mark and one mark for each acknowledgement (see `LOG.md`).
fn entry_of(recording: &Recording, ledger: &Ledger, command: usize) -> Option<u64> {
    let commands = recording.commands();
    let this = commands.get(command)?;
    if this.errno != 0 {
        return None;
    }
    let before = commands[..command].iter().filter(|c| c.errno == 0).count() as u64;
    Some(before + marks_up_to(recording, ledger, this.completed))
}

/// The entry of the mark of an acknowledgement that was read at `at`.
fn entry_of_mark(recording: &Recording, ledger: &Ledger, at: Position) -> u64 {
    let commands = recording.commands();
    let end = commands.partition_point(|command| command.completed < at.0);
    let before = commands[..end].iter().filter(|c| c.errno == 0).count() as u64;
    // Of marks of one position this is the first.
    before + marks_up_to(recording, ledger, at.0.saturating_sub(1))
}

fn marks_up_to(recording: &Recording, ledger: &Ledger, position: u64) -> u64 {
    let acknowledged = ledger
        .marks()
        .iter()
        .filter(|(at, _)| at.0 <= position)
        .count() as u64;
    u64::from(recording.header().base <= position) + acknowledged
}
