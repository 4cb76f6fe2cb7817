//! Small cells, ledgers and observations, built in a few words.
#![allow(dead_code)]

use plugpull_model::drive::{Cache, DriveSettings};
use plugpull_model::ledger::{Ledger, LedgerLine, OperationId};
use plugpull_model::observation::{
    Observation, ObservedContent, ObservedObject, RecoveryOutcome, UseAfterRecovery,
};
use plugpull_model::plan::PlannedCell;
use plugpull_model::scenario::{ContractSpec, Order};
use plugpull_model::seams::Recovered;
use plugpull_model::seed::Seed;
use plugpull_model::stack::{Filesystem, RecoveryStep, Stack};
use plugpull_model::units::{ByteOffset, Position, Sequence, StreamId};
use plugpull_model::verdict::{Breach, FindingKind, Role};
use plugpull_model::workload::{Acknowledge, LogFile, PlannedWorkload, PlannedWriter};
use plugpull_record::{RecordKey, RunId, encode};
use plugpull_verify::{inspect, judge};

pub const RUN: RunId = RunId([0x11; 16]);
pub const RECORD_BYTES: u32 = 8192;
pub const BLOCK_BYTES: u32 = 4096;

/// A cell of `writers` x `records`; raw stacks put all of them on one device.
pub fn cell(filesystem: Filesystem, writers: u32, records: u32) -> PlannedCell {
    let raw = filesystem == Filesystem::None;
    PlannedCell {
        id: "stack@drive".into(),
        stack_name: "stack".into(),
        drive_name: "drive".into(),
        role: Role::Subject,
        stack: Stack {
            filesystem,
            device_bytes: 64 << 20,
            mkfs: Vec::new(),
            mount: String::new(),
            recovery: vec![RecoveryStep::Mount],
        },
        drive: DriveSettings::plain(Cache::Volatile, BLOCK_BYTES),
        workload: PlannedWorkload {
            record_bytes: RECORD_BYTES,
            writers: (0..writers)
                .map(|index| PlannedWriter {
                    stream: StreamId(index),
                    object: if raw {
                        "device".into()
                    } else {
                        format!("log-{index}")
                    },
                    first_address: ByteOffset(if raw {
                        u64::from(index) * u64::from(records) * u64::from(RECORD_BYTES)
                    } else {
                        0
                    }),
                    records,
                })
                .collect(),
            file: LogFile::Growing,
            acknowledge: Acknowledge::Fdatasync,
            direct: false,
            pause_us: 0,
        },
        states_seed: Seed(1),
        faults_seed: Seed(2),
    }
}

pub fn op(stream: u32, sequence: u64) -> OperationId {
    OperationId {
        stream: StreamId(stream),
        sequence: Sequence(sequence),
        version: 1,
    }
}

pub fn key(cell: &PlannedCell, stream: u32, sequence: u32) -> RecordKey {
    let writer = &cell.workload.writers[stream as usize];
    let write = cell.workload.write(writer, sequence).expect("planned");
    RecordKey {
        run: RUN,
        stream: write.stream.0,
        sequence: write.sequence.0,
        version: write.version,
        address: write.address.0,
        length: write.length_bytes,
    }
}

pub fn record(key: &RecordKey) -> Vec<u8> {
    let mut bytes = vec![0; key.length as usize];
    encode(key, &mut bytes).expect("a record");
    bytes
}

/// Lines of a ledger, one position apart and 1 ms a position.
#[derive(Default)]
pub struct Lines(pub Vec<LedgerLine>);

impl Lines {
    pub fn issued(mut self, operation: OperationId, at: u64) -> Self {
        self.0.push(LedgerLine::Issued {
            operation,
            at: Position(at),
            time_ns: at * 1_000_000,
        });
        self
    }
    pub fn acknowledged(mut self, operation: OperationId, at: u64) -> Self {
        self.0.push(LedgerLine::Acknowledged {
            operation,
            at: Position(at),
            time_ns: at * 1_000_000,
            latency_ns: 1,
        });
        self
    }
    pub fn failed(mut self, operation: OperationId, at: u64) -> Self {
        self.0.push(LedgerLine::Failed {
            operation,
            at: Position(at),
            time_ns: at * 1_000_000,
            errno: 5,
        });
        self
    }
    pub fn complete(mut self, at: u64) -> Self {
        self.0.push(LedgerLine::Complete { at: Position(at) });
        self
    }
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        ledger
            .push(LedgerLine::Header { schema: 1 })
            .expect("header");
        for line in &self.0 {
            ledger.push(*line).expect("a sound ledger");
        }
        ledger
    }
}

/// One writer, `records` records: record n issued at 10 n + 1 and acknowledged at 10 n + 5; complete.
pub fn steady(records: u64) -> Ledger {
    let mut lines = Lines::default();
    for n in 0..records {
        lines = lines
            .issued(op(0, n), 10 * n + 1)
            .acknowledged(op(0, n), 10 * n + 5);
    }
    lines.complete(10 * records).ledger()
}

/// The image of a cell on which everything is whole, and recovery says so.
pub struct Image {
    pub cell: PlannedCell,
    pub observation: Observation,
}

impl Image {
    pub fn whole(filesystem: Filesystem, writers: u32, records: u32) -> Image {
        let cell = cell(filesystem, writers, records);
        let mut objects: Vec<ObservedObject> = Vec::new();
        let mut recovered = Recovered::default();
        for writer in &cell.workload.writers {
            let bytes: Vec<u8> = (0..records)
                .flat_map(|sequence| record(&key(&cell, writer.stream.0, sequence)))
                .collect();
            recovered
                .records
                .extend((0..records).map(|n| op(writer.stream.0, u64::from(n))));
            match objects.iter_mut().find(|o| o.name == writer.object) {
                Some(object) => match &mut object.content {
                    ObservedContent::Bytes(device) => device.extend(bytes),
                    _ => unreachable!(),
                },
                None => objects.push(ObservedObject {
                    name: writer.object.clone(),
                    content: ObservedContent::Bytes(bytes),
                }),
            }
        }
        Image {
            cell,
            observation: Observation {
                recovery: RecoveryOutcome::Recovered,
                messages: vec!["EXT4-fs (loop0): recovery complete".into()],
                kernel_faults: Vec::new(),
                objects,
                recovered,
                used: None,
            },
        }
    }

    /// One writer on ext4.
    pub fn log(records: u32) -> Image {
        Image::whole(Filesystem::Ext4, 1, records)
    }

    pub fn bytes(&mut self, object: usize) -> &mut Vec<u8> {
        bytes_of(&mut self.observation.objects[object])
    }

    /// Puts bytes at the place of a record, and has recovery not give it back.
    pub fn plant(&mut self, stream: u32, sequence: u32, bytes: &[u8]) {
        let key = key(&self.cell, stream, sequence);
        let object = if self.cell.stack.filesystem == Filesystem::None {
            0
        } else {
            stream as usize
        };
        let at = key.address as usize;
        self.bytes(object)[at..at + bytes.len()].copy_from_slice(bytes);
        self.withhold(stream, sequence);
    }

    pub fn lose(&mut self, stream: u32, sequence: u32) {
        self.plant(stream, sequence, &[0; RECORD_BYTES as usize]);
    }

    pub fn withhold(&mut self, stream: u32, sequence: u32) {
        self.observation
            .recovered
            .records
            .remove(&op(stream, u64::from(sequence)));
    }

    /// Adds a second look that shows the same as the first.
    pub fn used(&mut self) -> &mut UseAfterRecovery {
        self.observation.used.insert(UseAfterRecovery {
            objects: self.observation.objects.clone(),
            checker: None,
            failed: None,
        })
    }

    pub fn judged(&self, ledger: &Ledger, cut: u64) -> Vec<Breach> {
        self.judged_under(&ContractSpec::default(), ledger, cut)
    }

    pub fn judged_under(&self, contract: &ContractSpec, ledger: &Ledger, cut: u64) -> Vec<Breach> {
        let inspection = inspect(&self.cell, RUN, &self.observation);
        let at = Position(cut);
        judge(
            &self.cell,
            contract,
            ledger,
            &inspection,
            at,
            cut * 1_000_000,
        )
    }
}

pub fn bytes_of(object: &mut ObservedObject) -> &mut Vec<u8> {
    match &mut object.content {
        ObservedContent::Bytes(bytes) => bytes,
        _ => unreachable!(),
    }
}

pub fn window(loss_window_ms: u32, order: Order) -> ContractSpec {
    ContractSpec {
        loss_window_ms,
        order,
    }
}

pub fn kinds(breaches: &[Breach]) -> Vec<(FindingKind, Option<u64>)> {
    breaches
        .iter()
        .map(|b| (b.kind, b.record.as_ref().map(|r| r.sequence.0)))
        .collect()
}

/// The one breach there is.
#[track_caller]
pub fn only(breaches: Vec<Breach>) -> Breach {
    assert_eq!(breaches.len(), 1, "{breaches:#?}");
    breaches.into_iter().next().expect("one")
}
