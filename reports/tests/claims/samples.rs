//! Runs to report on.

use std::collections::BTreeMap;

use plugpull_model::coverage::Coverage;
use plugpull_model::drive::{Cache, DriveSettings, Honesty, PlantedFault, ServiceTimes};
use plugpull_model::event::{CellName, EVENTS_SCHEMA, Event, LatencyNs, RecordingSummary};
use plugpull_model::plan::PlannedCell;
use plugpull_model::seed::Seed;
use plugpull_model::stack::{Filesystem, RecoveryStep, Stack};
use plugpull_model::units::{ByteOffset, Position, Sector, Sequence, StreamId, Trial};
use plugpull_model::verdict::{
    Breach, Cause, Detection, Fate, Finding, FindingKind, InconclusiveReason, RecordRef, Role,
    Verdict,
};
use plugpull_model::workload::{Acknowledge, LogFile, PlannedWorkload, PlannedWriter};

pub fn name(stack: &str, drive: &str, role: Role) -> CellName {
    CellName {
        id: format!("{stack}@{drive}"),
        stack: stack.to_owned(),
        drive: drive.to_owned(),
        cutter: "simulated".to_owned(),
        role,
    }
}

pub fn started(cells: Vec<CellName>) -> Event {
    Event::RunStarted {
        schema: EVENTS_SCHEMA,
        scenario: "quickstart".to_owned(),
        seed: Seed(7),
        run: "00112233445566778899aabbccddeeff".to_owned(),
        cells,
    }
}

pub fn environment(kernel: &str) -> Event {
    let facts = [
        ("kernel", kernel),
        ("machine", "x86_64"),
        ("mkfs.ext4", "mke2fs 1.47.0 (5-Feb-2023)"),
        ("processors", "2"),
    ];
    Event::Environment {
        facts: facts
            .iter()
            .map(|(name, fact)| ((*name).to_owned(), (*fact).to_owned()))
            .collect(),
    }
}

/// The plan of a cell; `lying` ignores flushes, `volatile-512` has planted faults.
pub fn planned(cell: &str) -> PlannedCell {
    let (stack, drive) = cell.split_once('@').expect("a cell's id");
    let raw = stack.starts_with("raw");
    let mut settings = DriveSettings {
        service: ServiceTimes {
            write_us: 20,
            flush_us: 50,
        },
        ..DriveSettings::plain(Cache::Volatile, 4096)
    };
    let mut recovery = vec![RecoveryStep::Mount];
    match drive {
        "lying" => {
            settings.flush = Honesty::Ignored;
            settings.fua = Honesty::Ignored;
        }
        "protected" => settings.cache = Cache::Protected,
        "volatile-512" => {
            settings.logical_block_bytes = 512;
            settings.atomic_write_bytes = 512;
            settings.atomic_boundary_bytes = 16384;
            settings.cache_bytes = Some(1 << 20);
            settings.faults = vec![
                PlantedFault::Shorn,
                PlantedFault::WriteEio {
                    from_event: 5,
                    to_event: 9,
                },
            ];
            let check = ["e2fsck", "-p"].map(str::to_owned);
            recovery.insert(0, RecoveryStep::Command(check.to_vec()));
        }
        _ => {}
    }
    let writer = |n: u32| PlannedWriter {
        stream: StreamId(n),
        object: if raw {
            "device".to_owned()
        } else {
            format!("log-{n}")
        },
        first_address: ByteOffset(if raw { u64::from(n) * 823_296 } else { 0 }),
        records: 201,
    };
    let mkfs: &[&str] = if raw {
        &[]
    } else {
        &["-b", "4096", "-J", "size=4"]
    };
    PlannedCell {
        id: cell.to_owned(),
        stack_name: stack.to_owned(),
        drive_name: drive.to_owned(),
        role: match drive {
            "lying" => Role::MustFail,
            "protected" => Role::MustPass,
            _ => Role::Subject,
        },
        stack: Stack {
            filesystem: if raw {
                Filesystem::None
            } else {
                Filesystem::Ext4
            },
            device_bytes: 64 << 20,
            mkfs: mkfs.iter().map(|word| (*word).to_owned()).collect(),
            mount: if raw { "" } else { "barrier=1" }.to_owned(),
            recovery,
        },
        drive: settings,
        workload: PlannedWorkload {
            record_bytes: 4096,
            writers: vec![writer(0), writer(1)],
            file: LogFile::Growing,
            acknowledge: if raw {
                Acknowledge::None
            } else {
                Acknowledge::Fdatasync
            },
            direct: false,
            pause_us: 0,
        },
        states_seed: Seed(11),
        faults_seed: Seed(12),
    }
}

/// `events` with the environment after the start and every cell's plan before it.
fn with_plans(events: Vec<Event>) -> Vec<Event> {
    let mut all = Vec::new();
    for event in events {
        if let Event::CellStarted { cell, .. } = &event {
            all.push(Event::Planned {
                cell: Box::new(planned(cell)),
            });
        }
        let start = matches!(event, Event::RunStarted { .. });
        all.push(event);
        if start {
            all.push(environment("6.18.0"));
        }
    }
    all
}

pub fn cell_started(cell: &str, trial: u32) -> Event {
    Event::CellStarted {
        cell: cell.to_owned(),
        trial: Trial(trial),
    }
}

pub fn recorded(cell: &str, trial: u32) -> Event {
    let raw = cell.starts_with("raw");
    let options = |text: &str| if raw { "" } else { text }.to_owned();
    Event::Recorded {
        cell: cell.to_owned(),
        trial: Trial(trial),
        summary: RecordingSummary {
            issued: 402,
            acknowledged: 400,
            base: Position(96),
            last_acknowledgement: Position(2210),
            commands: BTreeMap::from([("flush".to_owned(), 401), ("write".to_owned(), 812)]),
            max_depth: 4,
            latency_ns: LatencyNs {
                p50: 84_600,
                p99: 1_240_000,
                p999: 3_410_000,
                max: 12_900_000,
            },
            requested_options: options("barrier=1"),
            effective_options: options("rw,relatime"),
            queue: BTreeMap::from([
                ("scheduler".to_owned(), "none".to_owned()),
                ("write_cache".to_owned(), "write back".to_owned()),
            ]),
        },
    }
}

pub fn breach(kind: FindingKind) -> Breach {
    Breach {
        kind,
        object: "log-0".to_owned(),
        record: Some(RecordRef {
            stream: StreamId(0),
            sequence: Sequence(7),
            version: 1,
        }),
        expected: Fate::Required,
        observed: "zeros".to_owned(),
        offset: Some(ByteOffset(28672)),
        sector: None,
        newer_survives: false,
        after_recovery: false,
        detection: Detection::Silent,
        acknowledged_at: Some(Position(512)),
        ledger_line: Some(16),
        contractual: false,
    }
}

pub fn finding(cell: &str, n: u32, breach: Breach, cause: Cause) -> Finding {
    Finding {
        id: format!("{cell}#{n}"),
        cell: cell.to_owned(),
        trial: Trial(1),
        cut: Position(520 + u64::from(n)),
        image: format!("{n:032x}"),
        state: "2 of 5 pending fragments".to_owned(),
        breach,
        cause,
        explanation: None,
        reproduce: format!(
            "plugpull reproduce --run runs/20260101T000000Z-7 --cell {cell} --trial 1 --cut {} --image {n:032x}",
            520 + n
        ),
    }
}

pub fn lost(cell: &str, n: u32) -> Finding {
    finding(
        cell,
        n,
        breach(FindingKind::Lost),
        Cause::NoFlushBeforeAcknowledgement,
    )
}

pub fn unmountable(cell: &str, n: u32) -> Finding {
    let breach = Breach {
        object: "file system".to_owned(),
        record: None,
        observed: "EXT4-fs (loop3): error loading journal\nJBD2: Invalid checksum recovering data block 1078 in log".to_owned(),
        offset: None,
        detection: Detection::Detected,
        acknowledged_at: None,
        ledger_line: None,
        ..breach(FindingKind::Unmountable)
    };
    finding(cell, n, breach, Cause::Unexplained)
}

pub fn on_a_raw_device(cell: &str, n: u32) -> Finding {
    let breach = Breach {
        object: "device".to_owned(),
        newer_survives: true,
        offset: Some(ByteOffset(28672)),
        sector: Some(Sector(56)),
        ..breach(FindingKind::Lost)
    };
    finding(cell, n, breach, Cause::NoFlushBeforeAcknowledgement)
}

pub fn found(finding: Finding) -> Event {
    Event::Found {
        finding: Box::new(finding),
    }
}

pub fn exhaustive() -> Coverage {
    Coverage {
        cut_points: 229,
        possible: "412".to_owned(),
        covered: 412,
        checked: 229,
        used: 29,
        exhaustive: true,
        max_depth: 4,
        ..Coverage::default()
    }
}

pub fn sampled() -> Coverage {
    Coverage {
        cut_points: 260,
        possible: "12345678901234567890".to_owned(),
        covered: 8_812,
        checked: 2_580,
        used: 260,
        exhaustive: false,
        sampled_cut_points: 201,
        max_depth: 4,
        ..Coverage::default()
    }
}

pub fn finished(
    cell: &str,
    trial: u32,
    verdict: Verdict,
    coverage: Coverage,
    findings: &[(FindingKind, u64)],
) -> Event {
    Event::CellFinished {
        cell: cell.to_owned(),
        trial: Trial(trial),
        lost_on_a_mounted_image: findings.iter().any(|(kind, _)| *kind == FindingKind::Lost),
        verdict,
        coverage,
        findings: findings.iter().copied().collect(),
        contractual: BTreeMap::new(),
    }
}

pub fn whole_cell(cell: &str, verdict: Verdict, coverage: Coverage) -> Vec<Event> {
    vec![
        cell_started(cell, 1),
        recorded(cell, 1),
        finished(cell, 1, verdict, coverage, &[]),
    ]
}

pub const KERNEL_WORDS: &str =
    "EXT4-fs (loop0): journal_async_commit can't be mounted with data=ordered";

/// Every verdict, both controls, long and short names: like the quickstart.
pub fn quickstart() -> Vec<Event> {
    let (subject, violated) = (Role::Subject, Verdict::Violated);
    let mut events = vec![started(vec![
        name("ext4-barrier", "volatile", subject),
        name("ext4-nobarrier", "volatile", subject),
        name("ext4-async-commit", "volatile", subject),
        name("order-log-as-published", "volatile", subject),
        name("raw-noflush", "volatile", subject),
        name("ext4-barrier", "volatile-512", subject),
        name("ext4-barrier", "lying", Role::MustFail),
        name("ext4-barrier", "protected", Role::MustPass),
    ])];
    events.extend(whole_cell(
        "ext4-barrier@volatile",
        Verdict::Upheld,
        exhaustive(),
    ));
    let cell = "ext4-nobarrier@volatile";
    events.extend([
        cell_started(cell, 1),
        recorded(cell, 1),
        found(lost(cell, 1)),
        found(lost(cell, 2)),
        finished(
            cell,
            1,
            violated.clone(),
            sampled(),
            &[(FindingKind::Lost, 2_280)],
        ),
    ]);
    let cell = "ext4-async-commit@volatile";
    events.extend([
        cell_started(cell, 1),
        recorded(cell, 1),
        found(unmountable(cell, 1)),
        found(lost(cell, 2)),
        finished(
            cell,
            1,
            violated.clone(),
            sampled(),
            &[(FindingKind::Unmountable, 70), (FindingKind::Lost, 12)],
        ),
    ]);
    let cell = "order-log-as-published@volatile";
    events.extend([
        cell_started(cell, 1),
        finished(
            cell,
            1,
            Verdict::Refused(KERNEL_WORDS.to_owned()),
            Coverage::default(),
            &[],
        ),
    ]);
    let cell = "raw-noflush@volatile";
    events.extend([
        cell_started(cell, 1),
        recorded(cell, 1),
        found(on_a_raw_device(cell, 1)),
        finished(
            cell,
            1,
            violated.clone(),
            exhaustive(),
            &[(FindingKind::Lost, 64)],
        ),
    ]);
    events.extend(whole_cell(
        "ext4-barrier@volatile-512",
        Verdict::Inconclusive(InconclusiveReason::NeverExercised(
            "a depth above 1, which the cell claims with its 4 writers".to_owned(),
        )),
        Coverage {
            uncovered_cut_points: 31,
            ..sampled()
        },
    ));
    let cell = "ext4-barrier@lying";
    events.extend([
        cell_started(cell, 1),
        recorded(cell, 1),
        found(Finding {
            cause: Cause::FlushIgnored,
            ..lost(cell, 1)
        }),
        finished(cell, 1, violated, sampled(), &[(FindingKind::Lost, 1_904)]),
    ]);
    events.extend(whole_cell(
        "ext4-barrier@protected",
        Verdict::Upheld,
        exhaustive(),
    ));
    events.push(Event::RunFinished {
        verdict: Verdict::Violated,
    });
    with_plans(events)
}

/// One upheld subject with both controls as they must be.
pub fn upheld() -> Vec<Event> {
    let mut events = vec![started(vec![
        name("ext4-barrier", "volatile", Role::Subject),
        name("ext4-barrier", "lying", Role::MustFail),
        name("ext4-barrier", "protected", Role::MustPass),
    ])];
    events.extend(whole_cell(
        "ext4-barrier@volatile",
        Verdict::Upheld,
        exhaustive(),
    ));
    events.extend(control(1_904));
    events.extend(whole_cell(
        "ext4-barrier@protected",
        Verdict::Upheld,
        exhaustive(),
    ));
    events.push(Event::RunFinished {
        verdict: Verdict::Upheld,
    });
    events
}

/// The must-fail control, with this many losses; with none it misbehaves.
pub fn control(losses: u64) -> Vec<Event> {
    let cell = "ext4-barrier@lying";
    let mut events = vec![cell_started(cell, 1), recorded(cell, 1)];
    if losses > 0 {
        events.push(found(lost(cell, 1)));
        events.push(finished(
            cell,
            1,
            Verdict::Violated,
            sampled(),
            &[(FindingKind::Lost, losses)],
        ));
    } else {
        events.push(finished(cell, 1, Verdict::Upheld, sampled(), &[]));
    }
    events
}

/// As [`upheld`], but the must-fail control lost nothing.
pub fn blind() -> Vec<Event> {
    let mut events = vec![started(vec![
        name("ext4-barrier", "volatile", Role::Subject),
        name("ext4-barrier", "lying", Role::MustFail),
    ])];
    events.extend(whole_cell(
        "ext4-barrier@volatile",
        Verdict::Upheld,
        exhaustive(),
    ));
    events.extend(control(0));
    events
}

/// [`quickstart`] killed after the first finding of its second cell.
pub fn killed() -> Vec<Event> {
    let mut events = quickstart();
    let found = |event: &Event| matches!(event, Event::Found { .. });
    let first = events.iter().position(found).expect("a finding");
    events.truncate(first + 1);
    events
}
