//! What the writers cost beside the calls they make: the same writes by [`run_files`] and by a bare
//! loop, in a directory of your choice:
//! `cargo run --release -p plugpull-generator --example rate -- /dev/shm`.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use plugpull_generator::{LedgerFile, SharedLedger, prepare_files, run_files};
use plugpull_model::seams::PositionSource;
use plugpull_model::units::{ByteOffset, Position, StreamId};
use plugpull_model::workload::{Acknowledge, LogFile, PlannedWorkload, PlannedWriter};
use plugpull_record::RunId;

const RECORD_BYTES: u32 = 4096;
const RECORDS: u32 = 20_000;

struct Shared(AtomicU64);

impl PositionSource for Shared {
    fn position(&self) -> Position {
        Position(self.0.load(Ordering::Acquire))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args_os().nth(1).unwrap_or_else(|| "/tmp".into());
    println!("writes/s            bare loop   run_files   p99 us");
    for (name, acknowledge) in [
        ("none", Acknowledge::None),
        ("fdatasync", Acknowledge::Fdatasync),
    ] {
        for writers in [1, 4] {
            let bare = bare(Path::new(&parent), writers, acknowledge)?;
            let (ours, p99_ns) = ours(Path::new(&parent), writers, acknowledge)?;
            println!(
                "{name:<10} x {writers}   {bare:>12.0} {ours:>11.0} {:>8}",
                p99_ns / 1000
            );
        }
    }
    Ok(())
}

fn rate(writers: u32, began: Instant) -> f64 {
    f64::from(writers * RECORDS) / began.elapsed().as_secs_f64()
}

fn bare(parent: &Path, writers: u32, acknowledge: Acknowledge) -> Result<f64, Box<dyn Error>> {
    let directory = tempfile::tempdir_in(parent)?;
    let open = |number: u32| {
        let path = directory.path().join(format!("bare-{number}"));
        OpenOptions::new().write(true).create_new(true).open(path)
    };
    let files: Vec<File> = (0..writers).map(open).collect::<Result<_, _>>()?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || -> std::io::Result<()> {
                let record = vec![7; RECORD_BYTES as usize];
                for number in 0..RECORDS {
                    file.write_all_at(&record, u64::from(number) * u64::from(RECORD_BYTES))?;
                    if acknowledge == Acknowledge::Fdatasync {
                        file.sync_data()?;
                    }
                }
                Ok(())
            });
        }
    });
    Ok(rate(writers, began))
}

fn ours(
    parent: &Path,
    writers: u32,
    acknowledge: Acknowledge,
) -> Result<(f64, u64), Box<dyn Error>> {
    let directory = tempfile::tempdir_in(parent)?;
    let root = File::open(directory.path())?;
    let writer = |stream| PlannedWriter {
        stream: StreamId(stream),
        object: format!("log-{stream}"),
        first_address: ByteOffset(0),
        records: RECORDS,
    };
    let workload = PlannedWorkload {
        record_bytes: RECORD_BYTES,
        writers: (0..writers).map(writer).collect(),
        file: LogFile::Growing,
        acknowledge,
        direct: false,
        pause_us: 0,
    };
    prepare_files(root.as_fd(), &workload)?;
    let file = LedgerFile::create(File::create(directory.path().join("ledger"))?)?;
    let sink = SharedLedger::with_file(file);
    let positions = Shared(AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let summary = run_files(
        root.as_fd(),
        RunId([1; 16]),
        &workload,
        &positions,
        &sink,
        &stop,
    )?;
    let rate = rate(writers, began);
    sink.finish(positions.position())?;
    Ok((rate, summary.latencies.summary().p99))
}
