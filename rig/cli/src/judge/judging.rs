//! The oracle's side of a judgement: images met, inspected, judged and counted.

use std::collections::{BTreeMap, HashMap};

use num_bigint::BigUint;
use plugpull_crash::state::explorer::unit_bytes;
use plugpull_crash::state::{CrashState, ImageId};
use plugpull_model::coverage::Coverage;
use plugpull_model::drive::DriveSettings;
use plugpull_model::ledger::{Ledger, OperationId};
use plugpull_model::units::Position;
use plugpull_model::verdict::{Breach, FindingKind, InconclusiveReason, Verdict};
use plugpull_verify::{Inspection, judge};

use crate::error::RunError;
use crate::trial::Trial;

use super::Sabotage;
use super::cause::cause;
use super::explore::{Found, Judged, MAX_WHOLE_FINDINGS, Question, never_exercised};
use super::workers::Outcome;

enum Known {
    /// Being recovered; the cuts that wait for it.
    Pending {
        cuts: Vec<Position>,
        state: CrashState,
    },
    /// Recovered.
    Done {
        inspection: Box<Inspection>,
        verdict: Option<Vec<Breach>>,
    },
    /// Could not be.
    Failed,
}

pub(super) enum Met {
    Known,
    New,
    NoRoom,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    cut_points: u64,
    sampled: u64,
    uncovered: u64,
    covered: u64,
    pub(super) checked: u64,
    used: u64,
    pub(super) possible: BigUint,
    pub(super) max_depth: u32,
    acknowledged_cut: bool,
    pub(super) findings: BTreeMap<FindingKind, u64>,
    contractual: BTreeMap<FindingKind, u64>,
    lost_on_a_mounted_image: bool,
    unjudged: u64,
    first_unjudged: Option<String>,
}

impl Tally {
    pub(super) fn cut(&mut self, exhaustive: bool, covered_whole: bool) {
        self.cut_points += 1;
        self.sampled += u64::from(!exhaustive);
        self.uncovered += u64::from(!covered_whole);
    }

    pub(super) fn unjudged(&mut self, images: u64, why: &str) {
        self.unjudged += images;
        self.first_unjudged.get_or_insert_with(|| why.to_owned());
    }
}

pub(super) struct Judging<'a, 'f> {
    question: &'a Question<'a>,
    settings: &'a DriveSettings,
    pub(super) ledger: &'a Ledger,
    // Keyed access only, never iterated.
    images: HashMap<ImageId, Known>,
    pub(super) tally: Tally,
    pub(super) found: &'f mut dyn FnMut(Found) -> Result<(), RunError>,
    /// The first finding of each kind, to be explained when all was judged.
    pub(super) unexplained: Vec<Unexplained>,
    pub(super) failure: Option<RunError>,
}

/// A finding that is to be explained.
#[derive(Debug)]
pub(super) struct Unexplained {
    pub(super) found: Found,
    pub(super) state: CrashState,
}

impl<'a, 'f> Judging<'a, 'f> {
    /// Nothing judged yet.
    pub(super) fn new(
        question: &'a Question<'a>,
        settings: &'a DriveSettings,
        ledger: &'a Ledger,
        found: &'f mut dyn FnMut(Found) -> Result<(), RunError>,
    ) -> Judging<'a, 'f> {
        Judging {
            question,
            settings,
            ledger,
            images: HashMap::new(),
            tally: Tally::default(),
            found,
            unexplained: Vec::new(),
            failure: None,
        }
    }

    /// A state turns up at a cut.
    pub(super) fn meet(
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
                mut verdict,
            }) => {
                // How to build the image differs from cut to cut.
                self.judge(cut, image, &inspection, state, &mut verdict)?;
                self.images.insert(
                    image,
                    Known::Done {
                        inspection,
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
                self.images.insert(
                    image,
                    Known::Pending {
                        cuts: vec![cut],
                        state: state.clone(),
                    },
                );
                Ok(Met::New)
            }
        }
    }

    /// A worker is done with an image.
    pub(super) fn take(&mut self, outcome: Outcome) {
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
        state: &CrashState,
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
                let found = Found {
                    cut,
                    image,
                    state: in_words(state, self.settings),
                    cause: cause(&self.question.trial.recording, &cell.drive, breach, issued),
                    breach: breach.clone(),
                    explanation: None,
                };
                if *count == 1 {
                    self.unexplained.push(Unexplained {
                        found: found.clone(),
                        state: state.clone(),
                    });
                }
                (self.found)(found)?;
            }
        }
        Ok(())
    }

    pub(super) fn judged(self) -> Result<Judged, RunError> {
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

/// The time of a cut: that of the last completion before it.
pub(super) fn cut_time_ns(trial: &Trial, cut: Position) -> u64 {
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
