//! The ledger: what is written reads back, and whatever else is read is refused or weakens.

mod common;

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use common::{Counter, RUN, on_files, open};
use plugpull_generator::{
    GeneratorError, LedgerFile, ReadLedgerError, SharedLedger, prepare_files, read_ledger,
    run_files,
};
use plugpull_model::ledger::{LedgerLine, MAX_LEDGER_LINE_BYTES, OperationId};
use plugpull_model::seams::{AckSink, PositionSource};
use plugpull_model::units::{Position, Sequence, StreamId};
use plugpull_model::workload::Acknowledge;

/// A writer that the test can look into, and that may fill up.
#[derive(Clone)]
struct Shared {
    bytes: Arc<Mutex<Vec<u8>>>,
    most: usize,
}

impl Shared {
    fn new(most: usize) -> Self {
        Self {
            bytes: Arc::default(),
            most,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().expect("the bytes").clone()
    }
}

impl Write for Shared {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().expect("the bytes");
        if bytes.len() + data.len() > self.most {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn operation(sequence: u64) -> OperationId {
    OperationId {
        stream: StreamId(0),
        sequence: Sequence(sequence),
        version: 1,
    }
}

fn issued(sequence: u64) -> LedgerLine {
    LedgerLine::Issued {
        operation: operation(sequence),
        at: Position(sequence),
        time_ns: 1,
    }
}

fn acknowledged(sequence: u64) -> LedgerLine {
    LedgerLine::Acknowledged {
        operation: operation(sequence),
        at: Position(sequence + 1),
        time_ns: 2,
        latency_ns: 1,
    }
}

const HEADER: &str = "{\"header\":{\"schema\":1}}\n";
const ISSUED: &str = "{\"issued\":{\"operation\":{\"stream\":0,\"sequence\":0,\"version\":1},\"at\":0,\"time_ns\":1}}\n";

#[test]
fn the_ledger_of_many_writers_reads_back_as_it_was_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    let workload = on_files(4, 1500, Acknowledge::None);
    prepare_files(root.as_fd(), &workload).unwrap();
    let file = Shared::new(usize::MAX);
    let sink = SharedLedger::with_file(LedgerFile::create(file.clone()).unwrap());
    let positions = Counter::default();
    run_files(
        root.as_fd(),
        RUN,
        &workload,
        &positions,
        &sink,
        &AtomicBool::new(false),
    )
    .unwrap();
    let end = positions.position();
    sink.finish(end).unwrap();

    let bytes = file.bytes();
    assert!(bytes.starts_with(HEADER.as_bytes()));
    assert!(bytes.ends_with(format!("{{\"complete\":{{\"at\":{end}}}}}\n").as_bytes()));
    let read = read_ledger(bytes.as_slice()).unwrap();
    assert_eq!(read.acknowledged(), 6000);
    assert!(read.is_complete_to(end));
    assert_eq!(read, sink.into_ledger().unwrap());
}

#[test]
fn lines_are_written_as_the_model_describes_them() {
    let file = Shared::new(usize::MAX);
    let mut ledger = LedgerFile::create(file.clone()).unwrap();
    ledger.append(&[issued(0)]).unwrap();
    ledger.finish(Position(7)).unwrap();
    let text = String::from_utf8(file.bytes()).unwrap();
    assert_eq!(
        text,
        format!("{HEADER}{ISSUED}{{\"complete\":{{\"at\":7}}}}\n")
    );
}

#[test]
fn an_issued_line_waits_in_memory_until_an_acknowledgement_or_a_flush() {
    let file = Shared::new(usize::MAX);
    let sink = SharedLedger::with_file(LedgerFile::create(file.clone()).unwrap());
    for sequence in 0..5000 {
        sink.record(issued(sequence)).unwrap();
    }
    assert_eq!(file.bytes(), HEADER.as_bytes());
    sink.record(acknowledged(0)).unwrap();
    let read = read_ledger(file.bytes().as_slice()).unwrap();
    assert_eq!((read.issued(), read.acknowledged()), (5000, 1));
    sink.record(issued(5000)).unwrap();
    sink.flush().unwrap();
    assert_eq!(read_ledger(file.bytes().as_slice()).unwrap().issued(), 5001);
}

#[test]
fn a_ledger_that_was_cut_anywhere_reads_as_its_whole_lines_and_is_not_complete() {
    let file = Shared::new(usize::MAX);
    let sink = SharedLedger::with_file(LedgerFile::create(file.clone()).unwrap());
    for sequence in 0..3 {
        sink.record(issued(sequence)).unwrap();
        sink.record(acknowledged(sequence)).unwrap();
    }
    sink.finish(Position(9)).unwrap();
    let bytes = file.bytes();
    for length in 0..bytes.len() {
        let read = read_ledger(&bytes[..length]).unwrap();
        assert!(read.issued() <= 3 && read.acknowledged() <= read.issued());
        assert!(!read.is_complete_to(Position(0)), "cut at {length}");
    }
    assert!(
        read_ledger(bytes.as_slice())
            .unwrap()
            .is_complete_to(Position(9))
    );
}

#[test]
fn hostile_bytes_are_refused_with_the_line_that_holds_them() {
    let long = format!("{HEADER}{}\n", "x".repeat(MAX_LEDGER_LINE_BYTES + 1));
    let endless = format!("{HEADER}{}", "\0".repeat(1 << 20));
    let nested = format!("{HEADER}{}\n", "[".repeat(MAX_LEDGER_LINE_BYTES));
    let twice = format!("{HEADER}{ISSUED}{ISSUED}");
    let after = format!("{HEADER}{{\"complete\":{{\"at\":7}}}}\n{ISSUED}");
    let second_header = format!("{HEADER}{HEADER}");
    for (text, line) in [
        (ISSUED, 1),
        ("{\"header\":{\"schema\":2}}\n", 1),
        ("\n", 1),
        ("garbage\n", 1),
        (long.as_str(), 2),
        (endless.as_str(), 2),
        (nested.as_str(), 2),
        (twice.as_str(), 3),
        (after.as_str(), 3),
        (second_header.as_str(), 2),
    ] {
        let error = read_ledger(text.as_bytes()).unwrap_err();
        assert!(
            error.to_string().contains(&format!("ledger line {line}: ")),
            "{error}"
        );
        assert!(error.to_string().contains("run the trial again"), "{error}");
    }
    let unknown = format!("{HEADER}{{\"\u{1b}[2J{}\":1}}\n", "y".repeat(2000));
    let error = read_ledger(unknown.as_bytes()).unwrap_err().to_string();
    assert!(error.len() < 400 && !error.contains('\u{1b}'), "{error}");
    assert!(read_ledger([0xff, 0xfe, b'\n'].as_slice()).is_err());
}

#[test]
fn a_line_of_the_greatest_length_is_read() {
    let mut text = format!("{HEADER}{ISSUED}");
    text.pop();
    let spaces = MAX_LEDGER_LINE_BYTES - (ISSUED.len() - 1);
    text.push_str(&" ".repeat(spaces));
    assert_eq!(
        read_ledger(format!("{text}\n").as_bytes())
            .unwrap()
            .issued(),
        1
    );
    let error = read_ledger(format!("{text} \n").as_bytes()).unwrap_err();
    assert!(
        matches!(error, ReadLedgerError::TooLong { line: 2 }),
        "{error}"
    );
}

#[test]
fn random_damage_to_a_ledger_never_panics() {
    let whole = format!("{HEADER}{ISSUED}{{\"complete\":{{\"at\":7}}}}\n").into_bytes();
    let mut state = 1u32;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (state >> 8) as usize % bytes.len();
            bytes[at] = (state >> 24) as u8;
        }
        let _ = read_ledger(bytes.as_slice());
    }
}

#[test]
fn a_file_that_fills_up_fails_the_line_and_every_later_one() {
    let sink = SharedLedger::with_file(LedgerFile::create(Shared::new(100)).unwrap());
    sink.record(issued(0)).unwrap();
    let error = sink.flush().unwrap_err();
    assert!(error.to_string().contains("free space"), "{error}");
    assert!(sink.record(acknowledged(0)).is_err());
    assert!(sink.finish(Position(1)).is_err());
    assert!(matches!(
        sink.into_ledger(),
        Err(GeneratorError::Ledger { .. })
    ));
}

#[test]
fn a_line_that_contradicts_an_earlier_one_is_found_while_the_ledger_is_written() {
    let sink = SharedLedger::in_memory();
    sink.record(acknowledged(0)).unwrap();
    let error = sink.flush().unwrap_err();
    assert!(error.to_string().contains("never issued"), "{error}");
}

#[test]
fn a_finished_ledger_takes_no_line_and_is_finished_once() {
    let sink = SharedLedger::in_memory();
    sink.finish(Position(0)).unwrap();
    assert!(sink.record(issued(0)).is_err());
    assert!(sink.finish(Position(1)).is_err());
    assert!(sink.into_ledger().unwrap().is_complete_to(Position(0)));
}

#[test]
fn only_the_ledger_writes_its_first_and_last_line() {
    let sink = SharedLedger::in_memory();
    assert!(
        sink.record(LedgerLine::Complete { at: Position(3) })
            .is_err()
    );
    assert!(sink.record(LedgerLine::Header { schema: 1 }).is_err());
    assert!(!sink.into_ledger().unwrap().is_complete_to(Position(0)));
}
