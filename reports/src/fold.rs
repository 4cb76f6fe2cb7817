//! The fold: what a run's events leave behind for its reports.

use std::collections::{BTreeMap, BTreeSet};

use plugpull_model::coverage::Coverage;
use plugpull_model::event::{CellName, Event, RecordingSummary};
use plugpull_model::plan::PlannedCell;
use plugpull_model::seed::Seed;
use plugpull_model::units::{Position, Trial};
use plugpull_model::verdict::{
    Exit, Finding, FindingKind, InconclusiveReason, Role, RollUpCell, Verdict, exit_of, roll_up,
};

/// Everything a report needs, built by folding events in their order.
///
/// It takes any sequence: events of a cell that the run never announced add
/// that cell as a subject, so that nothing found is ever dropped.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub(crate) head: Option<RunHead>,
    pub(crate) cells: Vec<CellFold>,
    places: BTreeMap<String, usize>,
    /// What the run ran on, newest last. More than one only where a resumed run
    /// went on somewhere else.
    pub(crate) environments: Vec<BTreeMap<String, String>>,
    pub(crate) resumed: u32,
    pub(crate) finished: bool,
}

/// What [`Event::RunStarted`] says of the run.
#[derive(Clone, Debug)]
pub(crate) struct RunHead {
    pub(crate) scenario: String,
    pub(crate) seed: Seed,
    pub(crate) run: String,
}

/// One cell with all its trials.
#[derive(Clone, Debug)]
pub(crate) struct CellFold {
    pub(crate) name: CellName,
    /// The newest plan that was told of it.
    pub(crate) planned: Option<Box<PlannedCell>>,
    pub(crate) trials: BTreeMap<Trial, TrialFold>,
    /// In the order found, contractual losses included.
    pub(crate) found: Vec<Finding>,
}

/// One trial: begun, perhaps recorded, perhaps ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrialFold {
    pub(crate) recording: Option<RecordingSummary>,
    pub(crate) end: Option<TrialEnd>,
}

/// What [`Event::CellFinished`] says.
#[derive(Clone, Debug)]
pub(crate) struct TrialEnd {
    pub(crate) verdict: Verdict,
    pub(crate) coverage: Coverage,
    findings: BTreeMap<FindingKind, u64>,
    contractual: BTreeMap<FindingKind, u64>,
    lost_on_a_mounted_image: bool,
}

impl Report {
    /// A report of nothing.
    #[must_use]
    pub fn new() -> Self {
        Report::default()
    }

    /// The fold over all of `events`.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Report {
        let mut report = Report::new();
        for event in events {
            report.fold(event);
        }
        report
    }

    /// Takes one event.
    pub fn fold(&mut self, event: &Event) {
        match event {
            Event::RunStarted {
                schema: _,
                scenario,
                seed,
                run,
                cells,
            } => {
                self.head.get_or_insert_with(|| RunHead {
                    scenario: scenario.clone(),
                    seed: *seed,
                    run: run.clone(),
                });
                for name in cells {
                    self.announce(name.clone());
                }
            }
            Event::Environment { facts } => {
                if self.environments.last() != Some(facts) {
                    self.environments.push(facts.clone());
                }
            }
            Event::Planned { cell } => {
                let place = match self.places.get(&cell.id) {
                    Some(&place) => place,
                    None => self.announce(as_planned(cell)),
                };
                self.cells[place].planned = Some(cell.clone());
            }
            Event::RunResumed => {
                self.resumed = self.resumed.saturating_add(1);
                self.finished = false;
            }
            Event::CellStarted { cell, trial } => {
                self.trial(cell, *trial);
            }
            Event::Recorded {
                cell,
                trial,
                summary,
            } => self.trial(cell, *trial).recording = Some(summary.clone()),
            Event::Found { finding } => {
                let cell = self.cell(&finding.cell);
                cell.trials.entry(finding.trial).or_default();
                cell.found.push((**finding).clone());
            }
            Event::Explained {
                cell,
                finding,
                explanation,
            } => {
                let found = &mut self.cell(cell).found;
                if let Some(finding) = found.iter_mut().find(|known| known.id == *finding) {
                    finding.cause = explanation.cause;
                    finding.explanation = Some((**explanation).clone());
                }
            }
            Event::CellFinished {
                cell,
                trial,
                verdict,
                coverage,
                findings,
                contractual,
                lost_on_a_mounted_image,
            } => {
                let end = TrialEnd {
                    verdict: verdict.clone(),
                    coverage: coverage.clone(),
                    findings: findings.clone(),
                    contractual: contractual.clone(),
                    lost_on_a_mounted_image: *lost_on_a_mounted_image,
                };
                let trial = self.trial(cell, *trial);
                trial.end = Some(match trial.end.take() {
                    Some(earlier) => end.after(earlier),
                    None => end,
                });
            }
            Event::RunFinished { verdict: _ } => self.finished = true,
        }
    }

    /// The run's verdict: the model's roll-up over all cells. It is computed
    /// from the cells alone, so it is also what a runner writes as the last
    /// event of its run.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let verdicts: Vec<Verdict> = self.cells.iter().map(CellFold::verdict).collect();
        roll_up(&roll_up_cells(&self.cells, &verdicts))
    }

    /// The exit code of [`Report::verdict`].
    #[must_use]
    pub fn exit(&self) -> Exit {
        exit_of(&self.verdict())
    }

    fn announce(&mut self, name: CellName) -> usize {
        if let Some(&place) = self.places.get(&name.id) {
            // A cell that events named before the run announced it.
            if let Some(cell) = self.cells.get_mut(place) {
                cell.name = name;
            }
            return place;
        }
        let place = self.cells.len();
        self.places.insert(name.id.clone(), place);
        self.cells.push(CellFold {
            name,
            planned: None,
            trials: BTreeMap::new(),
            found: Vec::new(),
        });
        place
    }

    fn cell(&mut self, id: &str) -> &mut CellFold {
        let place = match self.places.get(id) {
            Some(&place) => place,
            None => self.announce(unannounced(id)),
        };
        &mut self.cells[place]
    }

    fn trial(&mut self, id: &str, trial: Trial) -> &mut TrialFold {
        self.cell(id).trials.entry(trial).or_default()
    }
}

/// The cells as the model's roll-up takes them.
pub(crate) fn roll_up_cells<'a>(
    cells: &'a [CellFold],
    verdicts: &'a [Verdict],
) -> Vec<RollUpCell<'a>> {
    cells
        .iter()
        .zip(verdicts)
        .map(|(cell, verdict)| RollUpCell {
            id: &cell.name.id,
            role: cell.name.role,
            verdict,
            lost_on_a_mounted_image: cell.lost_on_a_mounted_image(),
        })
        .collect()
}

/// The name of a cell that the run never announced and whose plan was told.
fn as_planned(cell: &PlannedCell) -> CellName {
    CellName {
        stack: cell.stack_name.clone(),
        drive: cell.drive_name.clone(),
        role: cell.role,
        ..unannounced(&cell.id)
    }
}

fn unannounced(id: &str) -> CellName {
    let (stack, drive) = id.split_once('@').unwrap_or((id, "unknown"));
    CellName {
        id: id.to_owned(),
        stack: stack.to_owned(),
        drive: drive.to_owned(),
        cutter: "unknown".to_owned(),
        role: Role::Subject,
    }
}

impl TrialEnd {
    /// This end of a trial that had ended before: what the earlier one found stays.
    fn after(mut self, earlier: TrialEnd) -> TrialEnd {
        raise(&mut self.findings, &earlier.findings);
        raise(&mut self.contractual, &earlier.contractual);
        self.lost_on_a_mounted_image |= earlier.lost_on_a_mounted_image;
        if severity(&earlier.verdict) > severity(&self.verdict) {
            self.verdict = earlier.verdict;
        }
        self
    }
}

/// Sets each count to the larger of both.
fn raise(counts: &mut BTreeMap<FindingKind, u64>, others: &BTreeMap<FindingKind, u64>) {
    for (kind, other) in others {
        let count = counts.entry(*kind).or_insert(0);
        *count = (*count).max(*other);
    }
}

/// Which verdict of several trials is the cell's: the greatest.
fn severity(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Upheld => 0,
        Verdict::Refused(_) => 1,
        Verdict::Inconclusive(_) => 2,
        Verdict::Violated => 3,
    }
}

impl CellFold {
    /// The cell's own verdict, before its run's controls are looked at:
    /// violated if any trial found anything, else not finished if the newest
    /// trial has no end, else the worst of its trials.
    pub(crate) fn verdict(&self) -> Verdict {
        let ended_worst = self
            .trials
            .values()
            .filter_map(|trial| trial.end.as_ref())
            .map(|end| &end.verdict)
            // The first of equals: its reason is the one that came first.
            .fold(None::<&Verdict>, |worst, verdict| match worst {
                Some(worst) if severity(worst) >= severity(verdict) => Some(worst),
                _ => Some(verdict),
            });
        if ended_worst == Some(&Verdict::Violated) || !self.findings().is_empty() {
            return Verdict::Violated;
        }
        match ended_worst {
            Some(verdict) if self.is_finished() => verdict.clone(),
            _ => Verdict::Inconclusive(InconclusiveReason::NotFinished),
        }
    }

    /// Whether the newest trial came to its end.
    pub(crate) fn is_finished(&self) -> bool {
        self.trials
            .last_key_value()
            .is_some_and(|(_, trial)| trial.end.is_some())
    }

    /// (image, cut) pairs with a breach, by kind, over all trials.
    pub(crate) fn findings(&self) -> BTreeMap<FindingKind, u64> {
        self.count(false)
    }

    /// (image, cut) pairs with a loss inside the contract, by kind, over all trials.
    pub(crate) fn contractual(&self) -> BTreeMap<FindingKind, u64> {
        self.count(true)
    }

    /// A trial's end has the counts; of a trial without one there are the
    /// findings that were kept, which is a lower bound.
    fn count(&self, contractual: bool) -> BTreeMap<FindingKind, u64> {
        let kept: BTreeSet<(Trial, FindingKind, &str, Position)> = self
            .found
            .iter()
            .filter(|finding| finding.breach.contractual == contractual)
            .map(|finding| {
                let kind = finding.breach.kind;
                (finding.trial, kind, finding.image.as_str(), finding.cut)
            })
            .collect();
        let mut kept_counts: BTreeMap<Trial, BTreeMap<FindingKind, u64>> = BTreeMap::new();
        for (trial, kind, _, _) in kept {
            *kept_counts
                .entry(trial)
                .or_default()
                .entry(kind)
                .or_insert(0) += 1;
        }
        let mut sum: BTreeMap<FindingKind, u64> = BTreeMap::new();
        for (number, trial) in &self.trials {
            let mut counts = match &trial.end {
                Some(end) if contractual => end.contractual.clone(),
                Some(end) => end.findings.clone(),
                None => BTreeMap::new(),
            };
            if let Some(kept) = kept_counts.get(number) {
                raise(&mut counts, kept);
            }
            for (kind, count) in counts {
                let total = sum.entry(kind).or_insert(0);
                *total = total.saturating_add(count);
            }
        }
        sum.retain(|_, count| *count > 0);
        sum
    }

    /// Whether a trial that ended says so. An unfinished cell proves nothing
    /// about the rig's eyes, whatever it found so far.
    pub(crate) fn lost_on_a_mounted_image(&self) -> bool {
        self.is_finished()
            && self
                .trials
                .values()
                .filter_map(|trial| trial.end.as_ref())
                .any(|end| end.lost_on_a_mounted_image)
    }

    /// The newest trial that ended, else the newest that was recorded: where
    /// the cell's numbers come from.
    pub(crate) fn counted_trial(&self) -> Option<&TrialFold> {
        let newest_first = || self.trials.values().rev();
        newest_first()
            .find(|trial| trial.end.is_some())
            .or_else(|| newest_first().find(|trial| trial.recording.is_some()))
    }

    /// The finding that is shown: the first about an acknowledged record, which
    /// says more than an image that does not mount; else the first. Never a
    /// contractual one.
    pub(crate) fn first_finding(&self) -> Option<&Finding> {
        let mut breaches = self
            .found
            .iter()
            .filter(|finding| !finding.breach.contractual);
        let about_a_record = breaches
            .clone()
            .find(|finding| finding.breach.record.is_some());
        about_a_record.or_else(|| breaches.next())
    }
}
