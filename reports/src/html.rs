//! One self-contained HTML page: no script, nothing loaded from elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use plugpull_model::verdict::{Role, Verdict};

use crate::cutter::{GREEN_DOES_NOT_MEAN, cutter};
use crate::fold::Report;
use crate::settings::{breakable, environment, fault_list, planned};
use crate::view::{CellView, RunView};
use crate::words::{big_number, counts, explanation_in_words, finding_in_words, number, time};

const STYLE: &str = include_str!("page.css");
/// Findings of one cell that the page tells in words.
const FINDINGS_SHOWN: usize = 12;

impl Report {
    /// The report as one HTML page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let view = self.view();
        let scenario = self.head.as_ref().map_or("", |head| head.scenario.as_str());
        let verdict = view.verdict.name();
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                    title { "Plugpull " (scenario) ": " (verdict) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { "Plugpull: " (scenario) }
                        p.(verdict) { strong { (verdict.to_uppercase()) } " (exit " (view.exit as u8) ")" }
                        @if let Some(reason) = &view.reason { p { (reason) } }
                        @if view.unfinished() > 0 {
                            p.inconclusive {
                                (view.unfinished()) " of " (view.cells.len()) " cells have not run to their end."
                            }
                        }
                        @if let Some(head) = &self.head {
                            dl {
                                dt { "seed" } dd { (head.seed.0) }
                                dt { "run" } dd { code { (head.run) } }
                                @if self.resumed > 0 {
                                    dt { "resumed" } dd { (self.resumed) " times" }
                                }
                            }
                        }
                    }
                    main {
                        (overview(&view))
                        (controls(&view))
                        (planted(&view))
                        (environment(&self.environments))
                        h2 { "Cells" }
                        @for (place, cell) in view.cells.iter().enumerate() { (details(place, cell)) }
                        (cutters(&view))
                        (green())
                    }
                }
            }
        };
        let mut text = page.into_string();
        text.push('\n');
        text
    }
}

fn overview(view: &RunView<'_>) -> Markup {
    html! {
        h2 { "Overview" }
        div.wide {
            table {
                thead {
                    tr {
                        th scope="col" { "stack" }
                        th scope="col" { "drive" }
                        th scope="col" { "role" }
                        th scope="col" { "verdict" }
                        th scope="col" { "acked" }
                        th scope="col" { "cuts" }
                        th scope="col" { "depth" }
                        th scope="col" { "images / possible states" }
                        th scope="col" { "findings" }
                        th scope="col" { "p50" }
                        th scope="col" { "p99" }
                        th scope="col" { "p99.9" }
                    }
                }
                tbody {
                    @for (place, cell) in view.cells.iter().enumerate() { (overview_row(place, cell)) }
                }
            }
        }
    }
}

fn overview_row(place: usize, cell: &CellView<'_>) -> Markup {
    let judged = cell.coverage.filter(|coverage| coverage.cut_points > 0);
    let findings = unbroken(&counts(&cell.findings, !cell.finished));
    html! {
        tr {
            th.whole scope="row" { a href={ "#cell-" (place + 1) } { (cell.name.stack) } }
            td.whole { (cell.name.drive) }
            td.whole { @if cell.name.role != Role::Subject { (cell.name.role.name()) } }
            td.(cell.verdict.name()) { (cell.verdict.name()) }
            @match cell.recording {
                Some(recording) => td.number { (recording.acknowledged) " / " (recording.issued) },
                None => td.number { "-" },
            }
            @match judged {
                Some(coverage) => {
                    td.number { (coverage.cut_points) }
                    td.number { (cell.max_depth()) }
                    td.number {
                        (number(coverage.checked)) " / " (big_number(&coverage.possible)) " "
                        @if coverage.exhaustive { "exhaustive" } @else { "sampled" }
                    }
                    td { @if findings.is_empty() { "none" } @else { (findings) } }
                }
                None => {
                    td.number { "-" }
                    td.number { "-" }
                    td.number { "-" }
                    td { @if findings.is_empty() { "-" } @else { (findings) } }
                }
            }
            @match cell.recording.filter(|recording| recording.acknowledged > 0) {
                Some(recording) => {
                    td.number { (time(recording.latency_ns.p50)) }
                    td.number { (time(recording.latency_ns.p99)) }
                    td.number { (time(recording.latency_ns.p999)) }
                }
                None => {
                    td.number { "-" }
                    td.number { "-" }
                    td.number { "-" }
                }
            }
        }
    }
}

fn controls(view: &RunView<'_>) -> Markup {
    html! {
        h2 { "Controls" }
        @if view.controls().next().is_none() {
            p { "None in this run, so nothing shows that the rig would have seen a loss." }
        } @else {
            ul {
                @for cell in view.controls() {
                    li {
                        @if cell.misbehaves.is_some() { strong.violated { "misbehaved: " } }
                        (cell.control_in_words())
                    }
                }
            }
        }
    }
}

/// The drives with planted faults: what is found there was put there.
fn planted(view: &RunView<'_>) -> Markup {
    let with_faults: Vec<_> = view
        .cells
        .iter()
        .enumerate()
        .filter(|(_, cell)| !cell.faults().is_empty())
        .collect();
    html! {
        @if !with_faults.is_empty() {
            h2 { "Planted faults" }
            dl {
                @for (place, cell) in with_faults {
                    dt { a href={ "#cell-" (place + 1) } { (cell.name.id) } }
                    dd { (fault_list(cell.faults())) }
                }
            }
        }
    }
}

fn details(place: usize, cell: &CellView<'_>) -> Markup {
    html! {
        section id={ "cell-" (place + 1) } {
            h3 {
                (cell.name.stack) " on " (cell.name.drive)
                @if cell.name.role != Role::Subject { " (" (cell.name.role.name()) ")" }
                ": " span.(cell.verdict.name()) { (cell.verdict.name()) }
            }
            @if let Some(reason) = &cell.reason { p { (reason) } }
            @if cell.own_verdict != cell.verdict {
                p { "By itself, before the controls were looked at: " (cell.own_verdict.name()) "." }
            }
            dl {
                dt { "cutter" } dd { (cell.name.cutter) }
                dt { "trials" } dd { (cell.trials) }
                @if let Some(recording) = cell.recording {
                    dt { "records" }
                    dd { (recording.acknowledged) " acknowledged of " (recording.issued) " issued" }
                    dt { "recorded" }
                    dd { "events " (recording.base) " (base) to " (recording.last_acknowledgement) " (last acknowledgement)" }
                    @if !recording.requested_options.is_empty() || !recording.effective_options.is_empty() {
                        dt { "mount options requested" }
                        dd { code { (breakable(or_none(&recording.requested_options))) } }
                        dt { "mount options in effect" }
                        dd { code { (breakable(or_none(&recording.effective_options))) } }
                    }
                    dt { "queue settings" }
                    dd { (pairs(&recording.queue)) }
                    dt { "commands recorded" }
                    dd { (pairs(&recording.commands)) }
                    @if recording.acknowledged > 0 {
                        dt { "latency of an acknowledgement" }
                        dd {
                            "p50 " (time(recording.latency_ns.p50))
                            ", p99 " (time(recording.latency_ns.p99))
                            ", p99.9 " (time(recording.latency_ns.p999))
                            ", max " (time(recording.latency_ns.max))
                        }
                    }
                }
                @if let Some(coverage) = cell.coverage {
                    dt { "cut points" }
                    dd {
                        (coverage.cut_points) " judged, " (coverage.sampled_cut_points) " of them sampled"
                        @if coverage.uncovered_cut_points > 0 {
                            "; " strong { (coverage.uncovered_cut_points) " not judged, the budget was used up" }
                        }
                    }
                    dt { "crash states" }
                    dd {
                        (big_number(&coverage.possible)) " possible, " (coverage.covered) " judged against the ledger, "
                        (coverage.checked) " distinct images recovered, " (coverage.used) " of them used once more; "
                        @if coverage.exhaustive { "exhaustive" } @else { "sampled" }
                    }
                    dt { "greatest depth" } dd { (cell.max_depth()) }
                }
                dt { "findings" }
                dd { (or_none(&counts(&cell.findings, !cell.finished))) }
                @if !cell.contractual.is_empty() {
                    dt { "inside the contract" }
                    dd { (counts(&cell.contractual, !cell.finished)) "; not failed" }
                }
            }
            (findings(cell))
            @if let Some(cell) = cell.planned { (planned(cell)) }
        }
    }
}

fn findings(cell: &CellView<'_>) -> Markup {
    let breaches = || {
        cell.found
            .iter()
            .filter(|finding| !finding.breach.contractual)
    };
    let more = breaches().count().saturating_sub(FINDINGS_SHOWN);
    html! {
        @if cell.first_finding.is_some() {
            ol {
                @for finding in breaches().take(FINDINGS_SHOWN) {
                    li {
                        p { strong { (finding.breach.kind) } ": " (finding_in_words(finding)) }
                        @if let Some(explanation) = &finding.explanation {
                            p { "Because: " (explanation_in_words(explanation)) "." }
                        }
                        p { "Survivors: " (finding.state) ". Image " code { (finding.image) } "." }
                        pre { (finding.reproduce) }
                    }
                }
            }
            @if more > 0 { p { (more) " more in findings.json." } }
            p { "The first few of each kind are kept whole; the counts are of all." }
        } @else if cell.verdict == Verdict::Violated {
            p { "The events hold no finding in full, only its counts." }
        }
    }
}

/// Counts that a line breaks between kinds only.
fn unbroken(counts: &str) -> String {
    counts.replace(' ', "\u{a0}").replace(",\u{a0}", ", ")
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn pairs<V: std::fmt::Display>(map: &BTreeMap<String, V>) -> String {
    let text = map
        .iter()
        .map(|(key, value)| format!("{key} {value}"))
        .collect::<Vec<_>>()
        .join(", ");
    or_none(&text).to_owned()
}

fn cutters(view: &RunView<'_>) -> Markup {
    let names: BTreeSet<&str> = view
        .cells
        .iter()
        .map(|cell| cell.name.cutter.as_str())
        .collect();
    html! {
        h2 { "What the cutter can lose" }
        @for name in names {
            section {
                h3 { (name) }
                @match cutter(name) {
                    Some(cutter) => dl {
                        dt { "Loses" } dd { (cutter.loses) }
                        dt { "Does not lose" } dd { (cutter.does_not_lose) }
                        dt { "Confirms by" } dd { (cutter.confirms_by) }
                        dt { "Needs" } dd { (cutter.needs) }
                    },
                    None => p { "This version has no documentation of a cutter of this name." },
                }
            }
        }
    }
}

fn green() -> Markup {
    html! {
        h2 { "What a green run does not mean" }
        p { "Upheld says that nothing acknowledged was lost in anything that was judged. It does not say:" }
        ul { @for line in GREEN_DOES_NOT_MEAN { li { (line) } } }
    }
}
