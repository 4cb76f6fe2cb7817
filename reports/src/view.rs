//! What all reports say of a run, computed once from the fold.

use std::collections::BTreeMap;

use plugpull_model::coverage::Coverage;
use plugpull_model::drive::PlantedFault;
use plugpull_model::event::{CellName, RecordingSummary};
use plugpull_model::plan::PlannedCell;
use plugpull_model::verdict::{
    Exit, Finding, FindingKind, Role, Verdict, exit_of, misbehaving_controls, roll_up,
    subject_verdict,
};

use crate::fold::{Report, roll_up_cells};

/// A run as its reports see it.
pub(crate) struct RunView<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) reason: Option<String>,
    pub(crate) exit: Exit,
    pub(crate) cells: Vec<CellView<'a>>,
    pub(crate) finished: bool,
}

/// A cell as its reports see it.
pub(crate) struct CellView<'a> {
    pub(crate) name: &'a CellName,
    pub(crate) planned: Option<&'a PlannedCell>,
    /// Before the controls were looked at.
    pub(crate) own_verdict: Verdict,
    /// After.
    pub(crate) verdict: Verdict,
    pub(crate) reason: Option<String>,
    pub(crate) finished: bool,
    pub(crate) trials: usize,
    pub(crate) recording: Option<&'a RecordingSummary>,
    pub(crate) coverage: Option<&'a Coverage>,
    pub(crate) findings: BTreeMap<FindingKind, u64>,
    pub(crate) contractual: BTreeMap<FindingKind, u64>,
    pub(crate) lost_on_a_mounted_image: bool,
    pub(crate) first_finding: Option<&'a Finding>,
    pub(crate) found: &'a [Finding],
    /// Controls only: what is wrong with it, or `None` if it is as it must be.
    pub(crate) misbehaves: Option<String>,
}

impl Report {
    pub(crate) fn view(&self) -> RunView<'_> {
        let own: Vec<Verdict> = self.cells.iter().map(|cell| cell.verdict()).collect();
        let rolled = roll_up_cells(&self.cells, &own);
        let verdict = roll_up(&rolled);
        let misbehaves: Vec<Option<String>> = self
            .cells
            .iter()
            .zip(&rolled)
            .map(|(cell, rolled)| {
                let words = misbehaving_controls(std::slice::from_ref(rolled)).pop()?;
                Some(if cell.is_finished() {
                    words
                } else {
                    format!("{} has not run to its end", cell.name.id)
                })
            })
            .collect();
        let misbehaving: Vec<String> = misbehaves.iter().flatten().cloned().collect();
        let cells: Vec<CellView<'_>> = self
            .cells
            .iter()
            .zip(&own)
            .zip(&misbehaves)
            .map(|((cell, own_verdict), misbehaves)| {
                let verdict = match cell.name.role {
                    Role::Subject => subject_verdict(own_verdict, &misbehaving),
                    Role::MustFail | Role::MustPass => own_verdict.clone(),
                };
                let finished = cell.is_finished();
                let counted = cell.counted_trial();
                CellView {
                    name: &cell.name,
                    planned: cell.planned.as_deref(),
                    own_verdict: own_verdict.clone(),
                    reason: verdict.reason().or_else(|| {
                        (!finished).then(|| {
                            "not finished; the counts are those of the findings kept so far"
                                .to_owned()
                        })
                    }),
                    verdict,
                    finished,
                    trials: cell.trials.len(),
                    recording: counted.and_then(|trial| trial.recording.as_ref()),
                    coverage: counted
                        .and_then(|trial| trial.end.as_ref())
                        .map(|end| &end.coverage),
                    findings: cell.findings(),
                    contractual: cell.contractual(),
                    lost_on_a_mounted_image: cell.lost_on_a_mounted_image(),
                    first_finding: cell.first_finding(),
                    found: &cell.found,
                    misbehaves: misbehaves.clone(),
                }
            })
            .collect();
        let reason = run_reason(&verdict, &cells);
        RunView {
            exit: exit_of(&verdict),
            reason,
            finished: self.finished && cells.iter().all(|cell| cell.finished),
            verdict,
            cells,
        }
    }
}

/// The reason of the run's verdict with the cell it comes from.
fn run_reason(verdict: &Verdict, cells: &[CellView<'_>]) -> Option<String> {
    let without_cell = verdict.reason()?;
    let from = cells
        .iter()
        .find(|cell| cell.name.role == Role::Subject && cell.verdict.name() == verdict.name());
    Some(match from {
        Some(cell) => format!(
            "{}: {}",
            cell.name.id,
            cell.reason.as_ref().unwrap_or(&without_cell)
        ),
        None => "the run has no subject".to_owned(),
    })
}

impl RunView<'_> {
    /// Subjects by verdict, worst first, those that are there.
    pub(crate) fn subjects(&self) -> Vec<(&'static str, usize)> {
        ["violated", "inconclusive", "refused", "upheld"]
            .into_iter()
            .map(|name| {
                let count = self
                    .cells
                    .iter()
                    .filter(|cell| cell.name.role == Role::Subject && cell.verdict.name() == name)
                    .count();
                (name, count)
            })
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// The controls in order.
    pub(crate) fn controls(&self) -> impl Iterator<Item = &CellView<'_>> {
        self.cells
            .iter()
            .filter(|cell| cell.name.role != Role::Subject)
    }

    /// How many cells have not run to their end.
    pub(crate) fn unfinished(&self) -> usize {
        self.cells.iter().filter(|cell| !cell.finished).count()
    }
}

impl<'a> CellView<'a> {
    /// What to say of a control: that it behaved, or what is wrong with it.
    pub(crate) fn control_in_words(&self) -> String {
        if let Some(words) = &self.misbehaves {
            return words.clone();
        }
        match self.name.role {
            Role::MustFail => format!(
                "{} lost acknowledged records on images that mount, as it must",
                self.name.id
            ),
            Role::MustPass | Role::Subject => format!("{} was upheld, as it must be", self.name.id),
        }
    }

    /// The faults planted in its drive; none where its plan was not told.
    pub(crate) fn faults(&self) -> &'a [PlantedFault] {
        self.planned.map_or(&[], |planned| &planned.drive.faults)
    }

    /// Most commands in flight at once.
    pub(crate) fn max_depth(&self) -> u32 {
        let judged = self.coverage.map_or(0, |coverage| coverage.max_depth);
        let recorded = self.recording.map_or(0, |recording| recording.max_depth);
        judged.max(recorded)
    }
}
