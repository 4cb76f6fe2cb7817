//! Using a file system once more.

mod common;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;

use common::{detached_tmpfs, holds_every_record, on_files, open, run_on_files};
use plugpull_generator::{prepare_files, read_files, use_files};
use plugpull_model::workload::Acknowledge;
use plugpull_record::SECTOR_BYTES;

fn files_in(directory: &Path) -> BTreeMap<String, u64> {
    std::fs::read_dir(directory)
        .expect("a file that was made")
        .map(|entry| {
            let entry = entry.expect("a file that was made");
            (
                entry
                    .file_name()
                    .into_string()
                    .expect("a file that was made"),
                entry.metadata().expect("a file that was made").len(),
            )
        })
        .collect()
}

#[test]
fn an_ordinary_file_system_is_filled_only_up_to_the_bound_and_holds_what_the_summary_says() {
    for max_fill_bytes in [0, 1, 4096, 100_000, 8 << 20] {
        let directory = tempfile::tempdir().unwrap();
        let used = use_files(open(directory.path()).as_fd(), max_fill_bytes).unwrap();
        assert!(!used.full);
        assert_eq!(used.bytes_written, max_fill_bytes);
        assert_eq!(used.bytes_rewritten, used.bytes_deleted);
        assert_eq!(used.files_deleted, used.files_created.div_ceil(2));
        assert_eq!(used.files_recreated, used.files_deleted);
        let files = files_in(&directory.path().join(&used.directory));
        assert_eq!(files.len() as u32, used.files_created);
        assert_eq!(files.values().sum::<u64>(), max_fill_bytes);
        for number in 0..used.files_created {
            let name = format!("fill-{number}");
            assert_eq!(files.contains_key(&name), number % 2 == 1, "{name}");
        }
    }
}

#[test]
fn a_small_file_system_is_filled_to_its_end_and_the_logs_stay_as_they_are() {
    let Some(root) = detached_tmpfs(c"3m") else {
        return;
    };
    let workload = on_files(2, 20, Acknowledge::Fdatasync);
    prepare_files(root.as_fd(), &workload).unwrap();
    run_on_files(&root, &workload).unwrap();
    let used = use_files(root.as_fd(), u64::MAX).unwrap();
    assert!(used.full);
    assert!(
        used.bytes_written > 2 << 20 && used.bytes_written < 3 << 20,
        "{used:?}"
    );
    assert!(used.bytes_rewritten > 1 << 20 && used.bytes_rewritten <= used.bytes_deleted);
    assert!(holds_every_record(
        &workload,
        &read_files(root.as_fd(), &workload)
    ));
}

#[test]
fn a_file_system_that_is_full_already_is_full_and_not_an_error() {
    let Some(root) = detached_tmpfs(c"1m") else {
        return;
    };
    while use_files(root.as_fd(), u64::MAX).unwrap().bytes_written > 0 {}
    let used = use_files(root.as_fd(), u64::MAX).unwrap();
    assert!(used.full);
    assert_eq!((used.bytes_written, used.bytes_rewritten), (0, 0));
}

#[test]
fn a_small_file_system_is_not_filled_beyond_the_bound() {
    let Some(root) = detached_tmpfs(c"3m") else {
        return;
    };
    let used = use_files(root.as_fd(), 1 << 20).unwrap();
    assert!(!used.full);
    assert_eq!(used.bytes_written, 1 << 20);
}

#[test]
fn what_it_writes_is_neither_zero_nor_a_record_in_any_sector() {
    let directory = tempfile::tempdir().unwrap();
    let used = use_files(open(directory.path()).as_fd(), 4 << 20).unwrap();
    for name in files_in(&directory.path().join(&used.directory)).keys() {
        let bytes = std::fs::read(directory.path().join(&used.directory).join(name)).unwrap();
        for sector in bytes.chunks(SECTOR_BYTES) {
            assert!(sector.is_ascii() && !sector.contains(&0));
            assert_eq!(plugpull_record::find_stamp(sector), None);
        }
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with(&format!("{name}, block 0 ")));
    }
}

#[test]
fn a_second_use_takes_a_directory_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let root = open(directory.path());
    let first = use_files(root.as_fd(), 4096).unwrap();
    let second = use_files(root.as_fd(), 4096).unwrap();
    assert_ne!(first.directory, second.directory);
}
