//! The table and the lines below it, for a terminal.

use plugpull_model::verdict::{Role, Verdict};

use crate::fold::Report;
use crate::layout::{Column, Field, Paint, lay_out, paragraph};
use crate::view::{CellView, RunView};
use crate::words::{
    big_number, counts, explanation_in_words, faults_in_words, finding_in_brief, number, one_line,
    printable, time,
};

/// How a table looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Paint verdicts with the terminal's colours.
    pub colour: bool,
    /// Most characters in a line. Only a command that reproduces a finding is
    /// longer, since a wrapped command cannot be copied.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            colour: false,
            width: 120,
        }
    }
}

const COLUMNS: [Column; 8] = [
    column("cell", false, "@ ", 3),
    column("verdict", false, "", 0),
    column("acked", true, "/", 0),
    column("cuts", true, "", 0),
    column("qd", true, "", 0),
    column("states", false, " ", 4),
    column("findings", false, ",", 5),
    column("p50/p99", false, "/", 2),
];

/// What the table's short words mean.
const LEGEND: &str = "distinct crash images recovered / crash states possible, summed over the \
                      cut points; all: every state at every cut; part: cuts sampled or left \
                      out; qd: most commands in flight at once";

const fn column(title: &'static str, right: bool, breaks: &'static str, gives_way: u8) -> Column {
    Column {
        title,
        right,
        breaks,
        gives_way,
    }
}

impl Report {
    /// The table and, below it, reasons, first findings with the commands that
    /// reproduce them, the controls, and the run's verdict in the last line.
    #[must_use]
    pub fn to_table(&self, style: Style) -> String {
        let view = self.view();
        let rows: Vec<Vec<Field>> = view.cells.iter().map(row).collect();
        let mut out = lay_out(&COLUMNS, &rows, style.width, style.colour)
            .unwrap_or_else(|| list(&rows, style));
        out.push('\n');
        if !view.cells.is_empty() {
            out.push_str(&paragraph(
                "states:",
                Some(Paint::Grey),
                LEGEND,
                style.width,
                style.colour,
            ));
        }
        for cell in &view.cells {
            faults(&mut out, cell, style);
        }
        for cell in &view.cells {
            below(&mut out, cell, style);
        }
        controls(&mut out, &view, style);
        last_lines(&mut out, &view, style);
        out
    }
}

fn paint_of(verdict: &Verdict) -> Paint {
    match verdict {
        Verdict::Upheld => Paint::Green,
        Verdict::Violated => Paint::Red,
        Verdict::Inconclusive(_) => Paint::Yellow,
        Verdict::Refused(_) => Paint::Grey,
    }
}

fn row(cell: &CellView<'_>) -> Vec<Field> {
    let plain = |text: String| Field { text, paint: None };
    let dash = || "-".to_owned();
    let name = match cell.name.role {
        Role::Subject => one_line(&cell.name.id),
        role => format!("{} {}", one_line(&cell.name.id), role.name()),
    };
    let acked = cell.recording.map_or_else(dash, |recording| {
        format!(
            "{}/{}",
            number(recording.acknowledged),
            number(recording.issued)
        )
    });
    let judged = cell.coverage.filter(|coverage| coverage.cut_points > 0);
    let states = judged.map_or_else(dash, |coverage| {
        format!(
            "{}/{} {}",
            number(coverage.checked),
            big_number(&coverage.possible),
            if coverage.exhaustive { "all" } else { "part" }
        )
    });
    let findings = counts(&cell.findings, !cell.finished);
    let findings = match (findings.is_empty(), judged.is_some()) {
        (false, _) => findings,
        (true, true) => "none".to_owned(),
        (true, false) => dash(),
    };
    let latency = cell
        .recording
        .filter(|recording| recording.acknowledged > 0)
        .map_or_else(dash, |recording| {
            let latency = recording.latency_ns;
            format!("{}/{}", time(latency.p50), time(latency.p99))
        });
    vec![
        plain(name),
        Field {
            text: cell.verdict.name().to_owned(),
            paint: Some(paint_of(&cell.verdict)),
        },
        plain(acked),
        plain(judged.map_or_else(dash, |coverage| number(coverage.cut_points))),
        plain(match cell.max_depth() {
            0 => dash(),
            depth => depth.to_string(),
        }),
        plain(states),
        plain(findings),
        plain(latency),
    ]
}

/// The rows where no table fits: one paragraph for each cell.
fn list(rows: &[Vec<Field>], style: Style) -> String {
    let mut out = String::new();
    for row in rows {
        let (Some(name), Some(verdict)) = (row.first(), row.get(1)) else {
            continue;
        };
        let numbers: Vec<String> = COLUMNS
            .iter()
            .zip(row)
            .skip(2)
            .map(|(column, field)| format!("{} {}", column.title, field.text))
            .collect();
        out.push_str(&paragraph(
            &verdict.text,
            verdict.paint,
            &format!("{}; {}", name.text, numbers.join("; ")),
            style.width,
            style.colour,
        ));
    }
    out
}

/// The faults planted in a cell's drive: what is found there is no surprise.
fn faults(out: &mut String, cell: &CellView<'_>, style: Style) {
    if cell.faults().is_empty() {
        return;
    }
    let text = format!(
        "{}: {}",
        one_line(&cell.name.id),
        faults_in_words(cell.faults())
    );
    out.push_str(&paragraph(
        "planted faults in",
        Some(Paint::Yellow),
        &text,
        style.width,
        style.colour,
    ));
}

/// What a cell has to say below the table.
fn below(out: &mut String, cell: &CellView<'_>, style: Style) {
    let name = match cell.name.role {
        Role::Subject => one_line(&cell.name.id),
        role => format!("{} ({})", one_line(&cell.name.id), role.name()),
    };
    let mut say = |head: &str, paint: Paint, text: String| {
        out.push_str(&paragraph(
            head,
            Some(paint),
            &text,
            style.width,
            style.colour,
        ));
    };
    let verdict = cell.verdict.name();
    let paint = paint_of(&cell.verdict);
    if let Some(reason) = &cell.reason {
        say(verdict, paint, format!("{name}: {}", one_line(reason)));
    }
    if let Some(coverage) = cell.coverage
        && coverage.uncovered_cut_points > 0
    {
        let text = format!(
            "{name}: {} cut points were looked at in part or not at all, the budget of images was used up",
            number(coverage.uncovered_cut_points)
        );
        say("uncovered", Paint::Yellow, text);
    }
    if !cell.contractual.is_empty() {
        let text = format!(
            "{name}: {} inside the loss window and the order that the contract allows; not failed",
            counts(&cell.contractual, !cell.finished)
        );
        say("contractual", Paint::Grey, text);
    }
    if cell.verdict != Verdict::Violated {
        return;
    }
    match cell.first_finding {
        Some(finding) => {
            say(
                verdict,
                paint,
                format!("{name}: {}", finding_in_brief(finding)),
            );
            if let Some(explanation) = &finding.explanation {
                say("  because", Paint::Grey, explanation_in_words(explanation));
            }
            out.push_str("  reproduce: ");
            out.push_str(&printable(&finding.reproduce));
            out.push('\n');
        }
        None => {
            let text = format!("{name}: the events hold no finding in full, only its counts");
            say(verdict, paint, text);
        }
    }
}

fn controls(out: &mut String, view: &RunView<'_>, style: Style) {
    let wrong: Vec<String> = view
        .controls()
        .filter(|cell| cell.misbehaves.is_some())
        .map(CellView::control_in_words)
        .collect();
    let right: Vec<String> = view
        .controls()
        .filter(|cell| cell.misbehaves.is_none())
        .map(CellView::control_in_words)
        .collect();
    let (paint, text) = if wrong.is_empty() && right.is_empty() {
        (
            Paint::Yellow,
            "none in this run, so nothing shows that the rig would have seen a loss".to_owned(),
        )
    } else if wrong.is_empty() {
        (
            Paint::Green,
            format!("all as they must be: {}", right.join("; ")),
        )
    } else {
        (
            Paint::Red,
            format!("NOT as they must be: {}", wrong.join("; ")),
        )
    };
    out.push_str(&paragraph(
        "controls:",
        Some(paint),
        &one_line(&text),
        style.width,
        style.colour,
    ));
}

fn last_lines(out: &mut String, view: &RunView<'_>, style: Style) {
    let unfinished = view.unfinished();
    if unfinished > 0 {
        let text = format!(
            "{unfinished} of {} cells have not run to their end; --resume goes on",
            view.cells.len()
        );
        out.push_str(&paragraph(
            "unfinished:",
            Some(Paint::Yellow),
            &text,
            style.width,
            style.colour,
        ));
    }
    let subjects = view.subjects();
    let total: usize = subjects.iter().map(|(_, count)| count).sum();
    let parts: Vec<String> = subjects
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let mut text = format!(
        "{} (exit {}): {total} {}",
        view.verdict.name().to_uppercase(),
        view.exit as u8,
        if total == 1 { "subject" } else { "subjects" },
    );
    if !parts.is_empty() {
        text.push_str(": ");
        text.push_str(&parts.join(", "));
    }
    let all = view.controls().count();
    let wrong = view
        .controls()
        .filter(|cell| cell.misbehaves.is_some())
        .count();
    if all > 0 {
        text.push_str(&format!("; controls: {} of {all} behaved", all - wrong));
    }
    out.push_str(&paragraph(
        "verdict:",
        Some(paint_of(&view.verdict)),
        &text,
        style.width,
        style.colour,
    ));
}
