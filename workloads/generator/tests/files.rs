//! The append-log on ordinary files.

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{
    Counter, Lines, RECORD_BYTES, RUN, Refuses, detached_tmpfs, holds_every_record, on_files, open,
    run_on_files,
};
use plugpull_generator::{
    GeneratorError, monotonic_ns, prepare_files, read_files, recover, run_files,
};
use plugpull_model::ledger::LedgerLine;
use plugpull_model::observation::ObservedContent;
use plugpull_model::workload::{Acknowledge, LogFile};

const ON_FILES: [Acknowledge; 5] = [
    Acknowledge::Fsync,
    Acknowledge::Fdatasync,
    Acknowledge::OSync,
    Acknowledge::ODsync,
    Acknowledge::None,
];

#[test]
fn every_acknowledging_call_leaves_the_planned_records_in_growing_and_preallocated_files() {
    for acknowledge in ON_FILES {
        for file in [LogFile::Growing, LogFile::Preallocated] {
            let directory = tempfile::tempdir().unwrap();
            let root = open(directory.path());
            let mut workload = on_files(2, 7, acknowledge);
            workload.file = file;
            prepare_files(root.as_fd(), &workload).unwrap();
            let (summary, ledger) = run_on_files(&root, &workload).unwrap();
            assert_eq!(
                (summary.issued, summary.acknowledged, summary.failed),
                (14, 14, 0)
            );
            assert_eq!(summary.first_error, None);
            assert_eq!(summary.latencies.count(), 14);
            assert_eq!((ledger.issued(), ledger.acknowledged()), (14, 14));
            let objects = read_files(root.as_fd(), &workload);
            assert!(
                holds_every_record(&workload, &objects),
                "{acknowledge:?} {file:?}"
            );
            let recovered = recover(RUN, &workload, &objects);
            assert_eq!(recovered.records.len(), 14);
            assert!(recovered.notes.is_empty());
        }
    }
}

#[test]
fn direct_writes_leave_the_planned_records_or_name_the_file_system_that_takes_none() {
    let mut roots = vec![];
    let disk = tempfile::tempdir().unwrap();
    roots.push(open(disk.path()));
    roots.extend(detached_tmpfs(c"4m"));
    for (root, acknowledge) in roots.iter().flat_map(|root| ON_FILES.map(|a| (root, a))) {
        let mut workload = on_files(2, 5, acknowledge);
        workload.direct = true;
        for writer in &mut workload.writers {
            writer.object = format!("{acknowledge:?}-{}", writer.stream);
        }
        prepare_files(root.as_fd(), &workload).unwrap();
        match run_on_files(root, &workload) {
            Ok((summary, _)) => {
                assert_eq!(summary.first_error, None);
                assert_eq!(summary.acknowledged, 10);
                assert!(holds_every_record(
                    &workload,
                    &read_files(root.as_fd(), &workload)
                ));
            }
            Err(refused @ GeneratorError::DirectUnsupported { .. }) => {
                println!("skipped: {refused}")
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_mount_that_has_no_path_is_prepared_written_and_read() {
    let Some(root) = detached_tmpfs(c"4m") else {
        return;
    };
    let workload = on_files(3, 10, Acknowledge::Fdatasync);
    prepare_files(root.as_fd(), &workload).unwrap();
    let (summary, _) = run_on_files(&root, &workload).unwrap();
    assert_eq!(summary.acknowledged, 30);
    assert!(holds_every_record(
        &workload,
        &read_files(root.as_fd(), &workload)
    ));
}

#[test]
fn a_prepared_file_is_empty_or_all_zeros_and_never_one_that_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    let mut workload = on_files(1, 300, Acknowledge::Fsync);
    prepare_files(root.as_fd(), &workload).unwrap();
    assert!(
        std::fs::read(directory.path().join("log-0"))
            .unwrap()
            .is_empty()
    );
    let again = prepare_files(root.as_fd(), &workload).unwrap_err();
    assert!(again.to_string().contains("creating `log-0`"), "{again}");
    assert!(again.to_string().contains("fresh from mkfs"), "{again}");

    workload.writers[0].object = "full".to_owned();
    workload.file = LogFile::Preallocated;
    prepare_files(root.as_fd(), &workload).unwrap();
    let bytes = std::fs::read(directory.path().join("full")).unwrap();
    assert_eq!(bytes, vec![0; 300 * RECORD_BYTES as usize]);
}

#[test]
fn each_record_is_issued_then_acknowledged_then_the_next_is_issued() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    let workload = on_files(1, 20, Acknowledge::Fdatasync);
    prepare_files(root.as_fd(), &workload).unwrap();
    let lines = Lines::default();
    let began_ns = monotonic_ns();
    run_files(
        root.as_fd(),
        RUN,
        &workload,
        &Counter::default(),
        &lines,
        &AtomicBool::new(false),
    )
    .unwrap();
    let ended_ns = monotonic_ns();
    let lines = lines.0.into_inner().unwrap();
    assert_eq!(lines.len(), 40);
    let mut last_ns = began_ns;
    for (number, line) in (0u64..).zip(&lines) {
        let (operation, at, time_ns) = match *line {
            LedgerLine::Issued {
                operation,
                at,
                time_ns,
            } if number % 2 == 0 => (operation, at, time_ns),
            LedgerLine::Acknowledged {
                operation,
                at,
                time_ns,
                latency_ns,
            } if number % 2 == 1 => {
                assert!(latency_ns > 0 && latency_ns <= time_ns - last_ns);
                (operation, at, time_ns)
            }
            other => panic!("line {number} is {other:?}"),
        };
        assert_eq!(operation.sequence.0, number / 2);
        assert_eq!(at.0, number, "one reading of the position for each line");
        assert!(time_ns >= last_ns && time_ns <= ended_ns);
        last_ns = time_ns;
    }
}

#[test]
fn a_write_that_fails_is_a_failed_line_and_stops_its_writer_only() {
    let Some(root) = detached_tmpfs(c"256k") else {
        return;
    };
    let mut workload = on_files(2, 100, Acknowledge::Fdatasync);
    // Paced, so that the second writer is done long before the first has filled the file system.
    workload.pause_us = 2000;
    workload.writers[1].records = 3;
    prepare_files(root.as_fd(), &workload).unwrap();
    let (summary, ledger) = run_on_files(&root, &workload).unwrap();
    assert_eq!(summary.failed, 1);
    assert_eq!(summary.issued, summary.acknowledged + 1);
    assert!(summary.acknowledged > 3 && summary.acknowledged < 100);
    let error = summary.first_error.unwrap();
    assert!(
        error.starts_with("stream 0, record ") && error.contains("pwrite: No space"),
        "{error}"
    );
    let last = ledger
        .iter()
        .filter(|(id, _)| id.stream.0 == 0)
        .last()
        .unwrap();
    assert!(last.1.failed && last.1.acknowledged.is_none());
    assert_eq!(ledger.iter().filter(|(id, _)| id.stream.0 == 1).count(), 3);
}

#[test]
fn a_ledger_that_takes_no_line_stops_every_writer() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    let mut workload = on_files(4, 1000, Acknowledge::None);
    workload.pause_us = 100;
    prepare_files(root.as_fd(), &workload).unwrap();
    let sink = Refuses {
        from: 40,
        taken: AtomicU64::new(0),
    };
    let error = run_files(
        root.as_fd(),
        RUN,
        &workload,
        &Counter::default(),
        &sink,
        &AtomicBool::new(false),
    )
    .unwrap_err();
    assert!(matches!(error, GeneratorError::Ledger { .. }), "{error}");
    assert!(error.to_string().contains("run directory"), "{error}");
    assert!(sink.taken.load(Ordering::SeqCst) <= 40 + 2 * 4);
}

#[test]
fn stop_ends_a_long_pause_at_a_record_boundary() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    let mut workload = on_files(2, 1000, Acknowledge::Fsync);
    workload.pause_us = 3_600_000_000;
    prepare_files(root.as_fd(), &workload).unwrap();
    let stop = AtomicBool::new(false);
    let lines = Lines::default();
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            stop.store(true, Ordering::Relaxed);
        });
        let summary = run_files(
            root.as_fd(),
            RUN,
            &workload,
            &Counter::default(),
            &lines,
            &stop,
        )
        .unwrap();
        assert_eq!(summary.issued, summary.acknowledged);
    });
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(lines.0.into_inner().unwrap().is_empty());
}

#[test]
fn the_last_acknowledgement_comes_after_a_pause_for_every_record() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    let mut workload = on_files(2, 4, Acknowledge::None);
    workload.pause_us = 10_000;
    prepare_files(root.as_fd(), &workload).unwrap();
    let began = Instant::now();
    run_on_files(&root, &workload).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(40));
}

#[test]
fn a_call_that_files_do_not_have_and_a_file_that_is_not_there_are_refused_before_any_write() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    for acknowledge in [Acknowledge::Flush, Acknowledge::Fua] {
        let error = run_on_files(&root, &on_files(1, 1, acknowledge)).unwrap_err();
        assert!(
            matches!(error, GeneratorError::Acknowledge { .. }),
            "{error}"
        );
    }
    let error = run_on_files(&root, &on_files(1, 1, Acknowledge::Fsync)).unwrap_err();
    assert!(error.to_string().contains("prepare_files"), "{error}");
    assert_eq!(error.errno(), Some(libc::ENOENT));
    symlink("/dev/null", directory.path().join("log-0")).unwrap();
    let error = run_on_files(&root, &on_files(1, 1, Acknowledge::Fsync)).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ELOOP), "{error}");
}

fn observed(root: &OwnedFd, object: &str) -> ObservedContent {
    let mut workload = on_files(1, 2, Acknowledge::Fsync);
    workload.writers[0].object = object.to_owned();
    read_files(root.as_fd(), &workload).remove(0).content
}

#[test]
fn a_longer_file_is_read_to_one_record_beyond_the_planned_ones() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    for (length, read) in [
        (0, 0),
        (100, 100),
        (8192, 8192),
        (8200, 8200),
        (1 << 30, 3 * 4096),
    ] {
        let file = std::fs::File::create(directory.path().join("log")).unwrap();
        file.set_len(length).unwrap();
        assert_eq!(
            observed(&root, "log"),
            ObservedContent::Bytes(vec![0; read])
        );
    }
}

#[test]
fn what_is_not_a_file_is_missing_or_unreadable_and_never_opened() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    std::fs::create_dir(directory.path().join("directory")).unwrap();
    symlink("/etc/hostname", directory.path().join("link")).unwrap();
    nix::unistd::mkfifo(
        &directory.path().join("pipe"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    assert_eq!(observed(&root, "nothing"), ObservedContent::Missing);
    for (object, errno) in [
        ("directory", libc::EISDIR),
        ("link", libc::ELOOP),
        ("pipe", libc::EINVAL),
        ("../etc", libc::EINVAL),
    ] {
        let unreadable = ObservedContent::Unreadable {
            before: vec![],
            errno,
        };
        assert_eq!(observed(&root, object), unreadable, "{object}");
    }
}
