//! Runs a plan, cell by cell, and tells what happens as events.

use std::collections::BTreeMap;
use std::path::Path;

use plugpull_model::event::{CellName, EVENTS_SCHEMA, Event};
use plugpull_model::plan::{Plan, PlannedCell};
use plugpull_model::stack::Filesystem;
use plugpull_model::units::Trial as TrialNumber;
use plugpull_model::verdict::{Exit, Finding, InconclusiveReason, Verdict};
use plugpull_reports::Report;
use plugpull_verify::check_ledger;

use crate::capability::{Capability, Probe, probe};
use crate::context::Context;
use crate::environment;
use crate::error::{RunError, file_error, shell_word};
use crate::judge::Sabotage;
use crate::judge::explore::{Found, Judged, Progress, Question, explore};
use crate::run_dir::{ROOM, RunDir, write_file};
use crate::trial::{Recorded, Trial, TrialFiles, is_finished, load, record};

/// A recording that does not hold the concurrency it was made for is made
/// again, so many times in all; then the cell is inconclusive.
const MAX_RECORDINGS: u32 = 5;

/// What a run shows while it goes on.
pub trait Show {
    /// A cell begins to record.
    fn recording(&mut self, cell: &str, index: usize, cells: usize);
    /// A cell is being judged.
    fn judging(&mut self, cell: &str, progress: Progress);
    /// A cell ended.
    fn ended(&mut self, cell: &str, verdict: &Verdict);
}

/// Shows nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Show for Silent {
    fn recording(&mut self, _cell: &str, _index: usize, _cells: usize) {}
    fn judging(&mut self, _cell: &str, _progress: Progress) {}
    fn ended(&mut self, _cell: &str, _verdict: &Verdict) {}
}

/// Fails when the machine lacks something that a cell of the plan needs.
///
/// # Errors
/// Names the first cell, the capability and the remedy.
pub fn check_capabilities(plan: &Plan) -> Result<(), RunError> {
    const EXT4: [Capability; 4] = [
        Capability::Root,
        Capability::Fuse,
        Capability::Loop,
        Capability::Ext4,
    ];
    let Some(cell) = plan
        .cells
        .iter()
        .find(|cell| cell.stack.filesystem == Filesystem::Ext4)
    else {
        return Ok(());
    };
    for capability in EXT4 {
        if let Probe::Missing { reason, remedy } = probe(capability) {
            return Err(RunError::Missing {
                cell: cell.id.clone(),
                capability: capability.name(),
                reason: reason.to_string(),
                remedy: format!("{remedy}; or run only the raw stacks: --cell 'raw-*'"),
            });
        }
    }
    Ok(())
}

/// Fails when `plan.json` is not the plan that the run began with: its hash is
/// the run's id.
///
/// # Errors
/// Names the file.
pub fn check_plan(out: &Path, plan: &Plan, events: &[Event]) -> Result<(), RunError> {
    let began = events.iter().find_map(|event| match event {
        Event::RunStarted { run, .. } => Some(run),
        _ => None,
    });
    match began {
        Some(run) if *run != plan.run_id().to_string() => Err(RunError::RunDirectory {
            path: out.join("plan.json"),
            reason: "it is not the plan that this run began with".to_owned(),
            remedy: "put the original back, or run again with another --out",
        }),
        _ => Ok(()),
    }
}

/// What an interrupted run had of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// Its last trial; 0 = it never began.
    trial: TrialNumber,
    /// Whether that one ended.
    ended: bool,
    /// Findings so far, over all trials.
    findings: u64,
}

/// A run in progress: its directory, its events so far, their fold.
struct Run<'a> {
    context: &'a Context,
    plan: &'a Plan,
    directory: RunDir,
    report: Report,
    sabotage: Sabotage,
}

/// Starts a run of `plan` in the directory `out`.
///
/// # Errors
/// When the rig cannot do its job. Findings are no errors: they are in the report.
pub fn start(
    context: &Context,
    plan: &Plan,
    out: &Path,
    sabotage: Sabotage,
    show: &mut dyn Show,
) -> Result<Report, RunError> {
    check_capabilities(plan)?;
    let directory = RunDir::create(out, plan)?;
    let mut run = Run {
        context,
        plan,
        directory,
        report: Report::new(),
        sabotage,
    };
    let cells = plan
        .cells
        .iter()
        .map(|cell| CellName {
            id: cell.id.clone(),
            stack: cell.stack_name.clone(),
            drive: cell.drive_name.clone(),
            cutter: "simulated".to_owned(),
            role: cell.role,
        })
        .collect();
    run.tell(Event::RunStarted {
        schema: EVENTS_SCHEMA,
        scenario: plan.scenario.clone(),
        seed: plan.seed,
        run: plan.run_id().to_string(),
        cells,
    })?;
    let facts = environment::facts();
    crate::run_dir::write_json(&run.directory.path().join("environment.json"), &facts)?;
    run.tell(Event::Environment { facts })?;
    run.cells(&BTreeMap::new(), show)
}

/// Goes on with the run in the directory `out`.
///
/// # Errors
/// When the directory is not one, or the rig cannot do its job.
pub fn resume(context: &Context, out: &Path, show: &mut dyn Show) -> Result<Report, RunError> {
    let (directory, plan, events) = RunDir::resume(out)?;
    check_plan(out, &plan, &events)?;
    if !matches!(events.first(), Some(Event::RunStarted { .. })) {
        return Err(RunError::RunDirectory {
            path: out.join("events.jsonl"),
            reason: "it does not begin with the start of a run".to_owned(),
            remedy: "it was killed before it did anything: run again with another --out",
        });
    }
    check_capabilities(&plan)?;
    let mut run = Run {
        context,
        plan: &plan,
        directory,
        report: Report::from_events(&events),
        sabotage: Sabotage::None,
    };
    let mut trials: BTreeMap<String, Before> = BTreeMap::new();
    for event in &events {
        match event {
            Event::CellStarted { cell, trial } => {
                let before = trials.entry(cell.clone()).or_default();
                (before.trial, before.ended) = (*trial, false);
            }
            Event::CellFinished { cell, trial, .. } => {
                let before = trials.entry(cell.clone()).or_default();
                (before.trial, before.ended) = (*trial, true);
            }
            Event::Found { finding } => {
                trials.entry(finding.cell.clone()).or_default().findings += 1;
            }
            _ => {}
        }
    }
    run.tell(Event::RunResumed)?;
    run.tell(Event::Environment {
        facts: environment::facts(),
    })?;
    run.cells(&trials, show)
}

impl Run<'_> {
    fn tell(&mut self, event: Event) -> Result<(), RunError> {
        self.directory.append(&event)?;
        self.report.fold(&event);
        Ok(())
    }

    fn cells(
        mut self,
        trials: &BTreeMap<String, Before>,
        show: &mut dyn Show,
    ) -> Result<Report, RunError> {
        let plan = self.plan;
        let mut outcome = Ok(());
        for (index, cell) in plan.cells.iter().enumerate() {
            let before = trials.get(&cell.id).copied().unwrap_or_default();
            if before.ended {
                continue;
            }
            show.recording(&cell.id, index, plan.cells.len());
            outcome = self.cell(cell, before, show);
            if outcome.is_err() {
                break;
            }
        }
        if outcome.is_ok() {
            let verdict = self.report.verdict();
            outcome = self.tell(Event::RunFinished { verdict });
        }
        // What was found before an interruption or a failure is kept and shown.
        let kept = self.keep();
        let outcome = match outcome {
            Ok(()) | Err(RunError::Interrupted) => kept,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => Ok(self.report),
            Err(source) if source.exit() == Exit::Failed => Err(RunError::Begun {
                source: Box::new(source),
                out: self.directory.path().to_owned(),
            }),
            Err(source) => Err(source),
        }
    }

    fn keep(&self) -> Result<(), RunError> {
        self.directory.sync()?;
        let path = self.directory.path();
        write_file(&path.join("report.json"), self.report.to_json().as_bytes())?;
        write_file(&path.join("report.html"), self.report.to_html().as_bytes())?;
        self.directory.write_manifest()
    }

    /// One cell, from recording to verdict. An interrupted trial goes on from
    /// its recording where it has a whole one; else a new one follows it.
    fn cell(
        &mut self,
        cell: &PlannedCell,
        before: Before,
        show: &mut dyn Show,
    ) -> Result<(), RunError> {
        self.context.go_on()?;
        let interrupted = self.directory.trial(&cell.id, before.trial);
        let (trial, files, recorded) = if before.trial.0 > 0 && is_finished(&interrupted.folder) {
            let loaded = load(&interrupted)?;
            (
                before.trial,
                interrupted,
                Ok(Recorded::Trial(Box::new(loaded))),
            )
        } else {
            let trial = TrialNumber(before.trial.0 + 1);
            let files = self.directory.trial(&cell.id, trial);
            self.tell(Event::Planned {
                cell: Box::new(cell.clone()),
            })?;
            self.tell(Event::CellStarted {
                cell: cell.id.clone(),
                trial,
            })?;
            let recorded = self.record(cell, &files)?;
            (trial, files, recorded)
        };
        let judged = match recorded {
            Err(why) => nothing_judged(Verdict::Inconclusive(InconclusiveReason::TrialFailed(why))),
            Ok(Recorded::Refused(words)) => nothing_judged(Verdict::Refused(words)),
            Ok(Recorded::Trial(recorded)) => {
                let summary = recorded.summary.clone();
                self.tell(Event::Recorded {
                    cell: cell.id.clone(),
                    trial,
                    summary,
                })?;
                match check_ledger(cell, &recorded.ledger) {
                    Ok(()) => {
                        self.judge(cell, (trial, before.findings), &recorded, &files, show)?
                    }
                    Err(misfit) => nothing_judged(Verdict::Inconclusive(
                        InconclusiveReason::LedgerVoid(misfit.to_string()),
                    )),
                }
            }
        };
        show.ended(&cell.id, &judged.verdict);
        self.tell(Event::CellFinished {
            cell: cell.id.clone(),
            trial,
            verdict: judged.verdict,
            coverage: judged.coverage,
            findings: judged.findings,
            contractual: judged.contractual,
            lost_on_a_mounted_image: judged.lost_on_a_mounted_image,
        })
    }

    /// A trial that cannot be recorded makes its cell inconclusive and the run
    /// goes on; a run directory that cannot be written ends the run.
    fn record(
        &self,
        cell: &PlannedCell,
        files: &TrialFiles,
    ) -> Result<Result<Recorded, String>, RunError> {
        for attempt in 1..=MAX_RECORDINGS {
            match record(self.context, cell, self.plan.run_id(), files) {
                Ok(Recorded::Trial(trial))
                    if attempt < MAX_RECORDINGS && lacks_depth(cell, &trial) =>
                {
                    // Not judged yet, so nothing is chosen by its outcome.
                    std::fs::remove_dir_all(&files.folder).map_err(file_error(
                        "cannot remove",
                        &files.folder,
                        ROOM,
                    ))?;
                }
                Ok(recorded) => return Ok(Ok(recorded)),
                Err(_) if self.context.stopped() => return Err(RunError::Interrupted),
                Err(error @ RunError::File { .. }) => return Err(error),
                // Whatever failed: without room there is no recording, and a cell
                // that ended here would not be run again by --resume.
                Err(_) if is_full(&files.folder) => {
                    return Err(file_error("cannot record into", &files.folder, ROOM)(
                        std::io::Error::from_raw_os_error(libc::ENOSPC),
                    ));
                }
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        Err(RunError::Interrupted)
    }

    fn judge(
        &mut self,
        cell: &PlannedCell,
        (trial, mut number): (TrialNumber, u64),
        recorded: &Trial,
        files: &TrialFiles,
        show: &mut dyn Show,
    ) -> Result<Judged, RunError> {
        let question = Question {
            plan: self.plan,
            cell,
            run: self.plan.run_id(),
            trial: recorded,
            sabotage: self.sabotage,
            only: None,
        };
        let context = self.context;
        let out = self.directory.path().to_owned();
        let mut findings: Vec<Finding> = Vec::new();
        let mut last_failure = None;
        let judged = explore(
            context,
            &question,
            &mut |found: Found| {
                if let Some(explanation) = found.explanation {
                    let known = findings.iter_mut().find(|known| {
                        known.cut == found.cut
                            && known.image == found.image.to_string()
                            && known.breach == found.breach
                    });
                    let Some(known) = known else { return Ok(()) };
                    known.cause = explanation.cause;
                    known.explanation = Some(explanation.clone());
                    let event = Event::Explained {
                        cell: cell.id.clone(),
                        finding: known.id.clone(),
                        explanation: Box::new(explanation),
                    };
                    if let Err(error) = self.tell(event) {
                        last_failure.get_or_insert(error);
                    }
                    return Ok(());
                }
                number += 1;
                let finding = whole(cell, trial, number, found, &out);
                findings.push(finding.clone());
                let event = Event::Found {
                    finding: Box::new(finding),
                };
                if let Err(error) = self.tell(event) {
                    last_failure.get_or_insert(error);
                }
                Ok(())
            },
            &mut |progress| show.judging(&cell.id, progress),
        );
        if let Some(error) = last_failure {
            return Err(error);
        }
        let judged = judged?;
        crate::run_dir::write_json(&files.folder.join("findings.json"), &findings)?;
        Ok(judged)
    }
}

fn is_full(folder: &Path) -> bool {
    nix::sys::statvfs::statvfs(folder).is_ok_and(|disk| disk.blocks_available() == 0)
}

/// Whether several writers never had two commands in flight: on a busy machine
/// a short workload's writers may run one after the other.
fn lacks_depth(cell: &PlannedCell, trial: &Trial) -> bool {
    cell.workload.writers.len() > 1 && trial.summary.max_depth < 2
}

fn whole(cell: &PlannedCell, trial: TrialNumber, number: u64, found: Found, out: &Path) -> Finding {
    let id = format!("{}#{number}", cell.id);
    Finding {
        reproduce: format!("plugpull replay {} '{id}'", shell_word(out)),
        id,
        cell: cell.id.clone(),
        trial,
        cut: found.cut,
        image: found.image.to_string(),
        state: found.state,
        breach: found.breach,
        cause: found.cause,
        explanation: None,
    }
}

fn nothing_judged(verdict: Verdict) -> Judged {
    Judged {
        verdict,
        coverage: plugpull_model::coverage::Coverage {
            possible: "0".to_owned(),
            ..Default::default()
        },
        findings: BTreeMap::new(),
        contractual: BTreeMap::new(),
        lost_on_a_mounted_image: false,
    }
}
