//! `report.json`: for machines. Its fields are in `reports/SCHEMA.md`.

use std::collections::BTreeMap;

use plugpull_model::drive::{DriveSettings, PlantedFault};
use plugpull_model::event::LatencyNs;
use plugpull_model::seed::Seed;
use plugpull_model::stack::Stack;
use plugpull_model::verdict::{Finding, FindingKind};
use plugpull_model::workload::PlannedWorkload;
use serde::Serialize;

use crate::fold::Report;
use crate::view::CellView;

/// Version of `report.json`.
pub const REPORT_SCHEMA: u32 = 1;

#[derive(Serialize)]
struct RunJson<'a> {
    schema: u32,
    verdict: &'static str,
    reason: Option<String>,
    seed: Option<Seed>,
    scenario: Option<&'a str>,
    run: Option<&'a str>,
    cells: Vec<CellJson<'a>>,
    exit: u8,
    finished: bool,
    resumed: u32,
    environment: Option<&'a BTreeMap<String, String>>,
    earlier_environments: &'a [BTreeMap<String, String>],
}

#[derive(Serialize)]
struct CellJson<'a> {
    id: &'a str,
    stack: &'a str,
    drive: &'a str,
    cutter: &'a str,
    role: &'static str,
    verdict: &'static str,
    reason: Option<&'a str>,
    records: Records,
    cut_points: u64,
    max_depth: u32,
    crash_states: CrashStates<'a>,
    findings: BTreeMap<FindingKind, u64>,
    latency_ns: LatencyNs,
    first_finding: Option<&'a Finding>,
    finished: bool,
    trials: usize,
    own_verdict: &'static str,
    misbehaves: Option<&'a str>,
    lost_on_a_mounted_image: bool,
    used: u64,
    sampled_cut_points: u64,
    uncovered_cut_points: u64,
    contractual: BTreeMap<FindingKind, u64>,
    base: Option<u64>,
    last_acknowledgement: Option<u64>,
    commands: BTreeMap<&'a str, u64>,
    queue: BTreeMap<&'a str, &'a str>,
    requested_options: Option<&'a str>,
    effective_options: Option<&'a str>,
    drive_settings: Option<&'a DriveSettings>,
    stack_settings: Option<&'a Stack>,
    workload: Option<&'a PlannedWorkload>,
    faults: Option<&'a [PlantedFault]>,
    faults_seed: Option<Seed>,
}

#[derive(Serialize)]
struct Records {
    issued: u64,
    acknowledged: u64,
}

#[derive(Serialize)]
struct CrashStates<'a> {
    possible: &'a str,
    covered: u64,
    checked: u64,
    exhaustive: bool,
}

impl Report {
    /// `report.json`, with a final newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        let view = self.view();
        let (environment, earlier_environments) = match self.environments.split_last() {
            Some((newest, earlier)) => (Some(newest), earlier),
            None => (None, [].as_slice()),
        };
        let json = RunJson {
            schema: REPORT_SCHEMA,
            verdict: view.verdict.name(),
            seed: self.head.as_ref().map(|head| head.seed),
            scenario: self.head.as_ref().map(|head| head.scenario.as_str()),
            run: self.head.as_ref().map(|head| head.run.as_str()),
            cells: view.cells.iter().map(cell_json).collect(),
            exit: view.exit as u8,
            finished: view.finished,
            resumed: self.resumed,
            reason: view.reason,
            environment,
            earlier_environments,
        };
        // Only maps with keys that are no text can fail, and there is none.
        let mut text = serde_json::to_string_pretty(&json).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn cell_json<'a>(cell: &'a CellView<'a>) -> CellJson<'a> {
    let recording = cell.recording;
    let coverage = cell.coverage;
    let options = |text: &'a String| (!text.is_empty()).then_some(text.as_str());
    CellJson {
        id: &cell.name.id,
        stack: &cell.name.stack,
        drive: &cell.name.drive,
        cutter: &cell.name.cutter,
        role: cell.name.role.name(),
        verdict: cell.verdict.name(),
        reason: cell.reason.as_deref(),
        records: Records {
            issued: recording.map_or(0, |recording| recording.issued),
            acknowledged: recording.map_or(0, |recording| recording.acknowledged),
        },
        cut_points: coverage.map_or(0, |coverage| coverage.cut_points),
        max_depth: cell.max_depth(),
        crash_states: CrashStates {
            possible: coverage
                .map(|coverage| coverage.possible.as_str())
                .filter(|possible| !possible.is_empty())
                .unwrap_or("0"),
            covered: coverage.map_or(0, |coverage| coverage.covered),
            checked: coverage.map_or(0, |coverage| coverage.checked),
            exhaustive: coverage.is_some_and(|coverage| coverage.exhaustive),
        },
        findings: cell.findings.clone(),
        latency_ns: recording.map_or_else(LatencyNs::default, |recording| recording.latency_ns),
        first_finding: cell.first_finding,
        finished: cell.finished,
        trials: cell.trials,
        own_verdict: cell.own_verdict.name(),
        misbehaves: cell.misbehaves.as_deref(),
        lost_on_a_mounted_image: cell.lost_on_a_mounted_image,
        used: coverage.map_or(0, |coverage| coverage.used),
        sampled_cut_points: coverage.map_or(0, |coverage| coverage.sampled_cut_points),
        uncovered_cut_points: coverage.map_or(0, |coverage| coverage.uncovered_cut_points),
        contractual: cell.contractual.clone(),
        base: recording.map(|recording| recording.base.0),
        last_acknowledgement: recording.map(|recording| recording.last_acknowledgement.0),
        commands: recording
            .into_iter()
            .flat_map(|recording| &recording.commands)
            .map(|(kind, count)| (kind.as_str(), *count))
            .collect(),
        queue: recording
            .into_iter()
            .flat_map(|recording| &recording.queue)
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect(),
        requested_options: recording.and_then(|recording| options(&recording.requested_options)),
        effective_options: recording.and_then(|recording| options(&recording.effective_options)),
        drive_settings: cell.planned.map(|planned| &planned.drive),
        stack_settings: cell.planned.map(|planned| &planned.stack),
        workload: cell.planned.map(|planned| &planned.workload),
        faults: cell.planned.map(|planned| planned.drive.faults.as_slice()),
        faults_seed: cell.planned.map(|planned| planned.faults_seed),
    }
}
