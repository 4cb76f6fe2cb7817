//! Rebuilds the crash image of a finding out of a run directory and judges it
//! again: the command that every failure ends with.

use std::io::{self, Write};
use std::path::Path;

use plugpull_crash::state::ImageId;
use plugpull_model::event::Event;
use plugpull_model::verdict::{Exit, Finding};
use plugpull_reports::finding_in_words;

use crate::context::Context;
use crate::error::RunError;
use crate::judge::Sabotage;
use crate::judge::explore::{Question, explore};
use crate::run_dir::{read_all_events, read_plan, trial_files};
use crate::trial::load;

/// Judges the image of one finding again. Exits 1 when the finding is there
/// again, 0 when it is not.
///
/// # Errors
/// When the run directory has no such finding, or cannot be read.
pub fn replay(
    context: &Context,
    directory: &Path,
    id: &str,
    out: &mut dyn Write,
) -> Result<Exit, RunError> {
    let plan = read_plan(directory)?;
    let events = read_all_events(&directory.join("events.jsonl"))?.events;
    crate::runner::check_plan(directory, &plan, &events)?;
    let found = |event: &Event| match event {
        Event::Found { finding } if finding.id == id => Some(finding.as_ref().clone()),
        _ => None,
    };
    let finding: Finding = events.iter().find_map(found).ok_or_else(|| {
        let first = events.iter().find_map(|event| match event {
            Event::Found { finding } => Some(finding.id.clone()),
            _ => None,
        });
        let remedy = first.map_or_else(
            || "the run has none".to_owned(),
            |first| format!("they are called like '{first}'"),
        );
        RunError::Usage(format!(
            "{} holds no finding `{id}`; {remedy}",
            directory.display()
        ))
    })?;
    let damaged = |reason: String| RunError::RunDirectory {
        path: directory.to_owned(),
        reason,
        remedy: "the run directory is damaged",
    };
    let cell = plan
        .cell(&finding.cell)
        .ok_or_else(|| damaged(format!("plan.json has no cell `{}`", finding.cell)))?;
    let image: ImageId = finding.image.parse().map_err(|e| damaged(format!("{e}")))?;
    crate::runner::check_capabilities(&plugpull_model::plan::Plan {
        cells: vec![cell.clone()],
        ..plan.clone()
    })?;
    let trial = load(&trial_files(directory, &finding.cell, finding.trial))?;
    let question = Question {
        plan: &plan,
        cell,
        run: plan.run_id(),
        trial: &trial,
        sabotage: Sabotage::None,
        only: Some((finding.cut, image)),
    };
    let mut again: Vec<Finding> = Vec::new();
    let judged = explore(
        context,
        &question,
        &mut |found| {
            again.push(Finding {
                id: finding.id.clone(),
                cell: finding.cell.clone(),
                trial: finding.trial,
                cut: found.cut,
                image: found.image.to_string(),
                state: found.state,
                breach: found.breach,
                cause: found.cause,
                explanation: finding.explanation.clone(),
                reproduce: finding.reproduce.clone(),
            });
            Ok(())
        },
        &mut |_| {},
    )?;
    if judged.coverage.covered == 0 {
        return Err(damaged(format!(
            "cut {} cannot leave image {}",
            finding.cut, finding.image
        )));
    }
    match report(out, &finding, &again) {
        // A reader that closed the pipe has seen what it wanted.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            return Err(crate::error::kernel_error("cannot print")(e));
        }
        _ => {}
    }
    Ok(if judged.findings.contains_key(&finding.breach.kind) {
        Exit::Violated
    } else {
        Exit::Upheld
    })
}

fn report(out: &mut dyn Write, finding: &Finding, again: &[Finding]) -> io::Result<()> {
    writeln!(
        out,
        "cell {}, cut at event {}, image {}",
        finding.cell, finding.cut, finding.image
    )?;
    writeln!(out, "image: {}", finding.state)?;
    if again.is_empty() {
        return writeln!(out, "judged again: upheld; the finding did not come back");
    }
    for finding in again {
        writeln!(
            out,
            "judged again: {}: {}",
            finding.breach.kind,
            finding_in_words(finding)
        )?;
    }
    Ok(())
}
