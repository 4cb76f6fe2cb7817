//! The recorded drive against what it says of itself.

use std::path::Path;
use std::sync::Barrier;

use plugpull_crash::drive::device::RecordedDevice;
use plugpull_crash::drive::recorder::Recorder;
use plugpull_crash::log::format::{ENTRY_HEADER_BYTES, FLAG_DISCARD, FLAG_MARK, decode_entry};
use plugpull_crash::log::index::Kind;
use plugpull_crash::log::reader::{Recording, read_index};
use plugpull_crash::log::writer::merge_marks;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_model::drive::{Cache, DriveSettings, PlantedFault, ServiceTimes};
use plugpull_model::seams::{Device, PositionSource};
use plugpull_model::units::ByteOffset;
use proptest::prelude::*;

const SIZE: u64 = 1 << 20;

fn recorder(folder: &Path, settings: DriveSettings) -> Recorder {
    let positions = SharedMemory::new("positions", 4096).expect("memfd");
    Recorder::new(
        SIZE,
        settings,
        positions,
        &folder.join("raw"),
        &folder.join("raw.idx"),
    )
    .expect("recorder")
}

fn plain() -> DriveSettings {
    DriveSettings::plain(Cache::Volatile, 512)
}

fn finished(folder: &Path, recorder: &Recorder, marks: &[(u64, String)]) -> Recording {
    recorder.finish().expect("finish");
    let (log, index) = (folder.join("log"), folder.join("log.idx"));
    merge_marks(
        (&folder.join("raw"), &folder.join("raw.idx")),
        marks,
        &log,
        &index,
    )
    .expect("merge");
    Recording::open(&log, &index).expect("open")
}

/// The log walked as the format says: (flags, sector, sectors, mark) of each entry.
fn walk(log: &Path) -> Vec<(u64, u64, u64, String)> {
    let bytes = std::fs::read(log).expect("log");
    let entries = u64::from_le_bytes(bytes[16..24].try_into().expect("8"));
    let mut at = 512;
    let mut out = Vec::new();
    for _ in 0..entries {
        let entry = decode_entry(bytes[at..at + ENTRY_HEADER_BYTES].try_into().expect("32"));
        let text = &bytes[at + 32..at + 32 + usize::try_from(entry.data_len).expect("fits")];
        out.push((
            entry.flags,
            entry.sector,
            entry.sectors,
            String::from_utf8_lossy(text).into_owned(),
        ));
        at += 512;
        if entry.flags & (FLAG_DISCARD | FLAG_MARK) == 0 {
            at += usize::try_from(entry.sectors).expect("fits") * 512;
        }
    }
    assert_eq!(at, bytes.len(), "the log ends with its last entry");
    out
}

#[test]
fn the_position_is_published_before_the_command_is_answered() {
    let folder = tempfile::tempdir().expect("tempdir");
    let recorder = recorder(folder.path(), plain());
    let device = RecordedDevice::new(&recorder);
    assert_eq!(recorder.position().0, 0);
    device
        .write(ByteOffset(0), &[1; 512], false)
        .expect("write");
    assert_eq!(recorder.position().0, 2);
    device.flush().expect("flush");
    assert_eq!(recorder.position().0, 4);
}

#[test]
fn a_mark_stands_behind_what_had_completed_and_before_what_had_not() {
    let folder = tempfile::tempdir().expect("tempdir");
    let recorder = recorder(folder.path(), plain());
    let early = recorder.submit(Kind::Write, 0, 512);
    let late = recorder.submit(Kind::Write, 512, 512);
    recorder.complete(early, &[1; 512]).expect("complete");
    let acknowledged = recorder.position().0;
    recorder.complete(late, &[2; 512]).expect("complete");
    finished(
        folder.path(),
        &recorder,
        &[(acknowledged, "ack-0-0-1".to_owned())],
    );
    let entries = walk(&folder.path().join("log"));
    assert_eq!(
        entries,
        [
            (0, 0, 1, String::new()),
            (FLAG_MARK, 0, 0, "ack-0-0-1".to_owned()),
            (0, 1, 1, String::new())
        ]
    );
}

#[test]
fn commands_complete_in_the_order_of_the_log_and_keep_their_submissions() {
    let folder = tempfile::tempdir().expect("tempdir");
    let recorder = recorder(folder.path(), plain());
    let first = recorder.submit(Kind::Write, 0, 512);
    let second = recorder.submit(Kind::Write, 512, 512);
    recorder.complete(second, &[2; 512]).expect("complete");
    recorder.complete(first, &[1; 512]).expect("complete");
    let recording = finished(folder.path(), &recorder, &[]);
    let order: Vec<(u64, u64, u64)> = recording
        .commands()
        .iter()
        .map(|c| (c.offset_bytes, c.submitted, c.completed))
        .collect();
    assert_eq!(order, [(512, 1, 2), (0, 0, 3)]);
}

#[test]
fn several_threads_with_service_times_are_seen_as_depth() {
    let folder = tempfile::tempdir().expect("tempdir");
    let mut settings = plain();
    settings.service = ServiceTimes {
        write_us: 3000,
        flush_us: 3000,
    };
    let recorder = recorder(folder.path(), settings);
    recorder.mark_base();
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for index in 0..4u64 {
            let (recorder, barrier) = (&recorder, &barrier);
            scope.spawn(move || {
                barrier.wait();
                RecordedDevice::new(recorder)
                    .write(ByteOffset(index * 512), &[7; 512], false)
                    .expect("write");
            });
        }
    });
    assert!(recorder.status().max_depth > 1, "{:?}", recorder.status());
}

#[test]
fn a_planted_error_fails_the_command_and_leaves_the_medium_alone() {
    let folder = tempfile::tempdir().expect("tempdir");
    let mut settings = plain();
    settings.faults = vec![PlantedFault::WriteEio {
        from_event: 2,
        to_event: 4,
    }];
    let recorder = recorder(folder.path(), settings);
    let device = RecordedDevice::new(&recorder);
    device
        .write(ByteOffset(0), &[1; 512], false)
        .expect("before base nothing fails");
    recorder.mark_base();
    device
        .write(ByteOffset(0), &[2; 512], false)
        .expect("before the window");
    let error = device
        .write(ByteOffset(0), &[3; 512], false)
        .expect_err("inside the window");
    assert_eq!(error.raw_os_error(), Some(5));
    device
        .write(ByteOffset(512), &[4; 512], false)
        .expect("after the window");
    let mut out = [0; 1024];
    device.read(ByteOffset(0), &mut out).expect("read");
    assert_eq!((out[0], out[512]), (2, 4));
    let recording = finished(folder.path(), &recorder, &[]);
    assert_eq!(
        recording.commands().iter().filter(|c| c.errno == 5).count(),
        1
    );
    assert_eq!(
        walk(&folder.path().join("log")).len(),
        3,
        "a failed write is not in the log"
    );
}

#[test]
fn a_command_beyond_the_end_fails() {
    let folder = tempfile::tempdir().expect("tempdir");
    let recorder = recorder(folder.path(), plain());
    let device = RecordedDevice::new(&recorder);
    assert!(
        device
            .write(ByteOffset(SIZE - 512), &[1; 1024], false)
            .is_err()
    );
    assert!(
        device
            .write(ByteOffset(u64::MAX), &[1; 512], false)
            .is_err()
    );
}

#[test]
fn after_the_end_of_the_recording_nothing_is_acknowledged() {
    let folder = tempfile::tempdir().expect("tempdir");
    let recorder = recorder(folder.path(), plain());
    recorder.finish().expect("finish");
    assert!(RecordedDevice::new(&recorder).flush().is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64, u8),
    Zero(u64, u64),
    Discard(u64, u64),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = (0..60u64, 1..4u64);
    let step = prop_oneof![
        (place.clone(), any::<u8>()).prop_map(|((at, length), byte)| Step::Write(at, length, byte)),
        place
            .clone()
            .prop_map(|(at, length)| Step::Zero(at, length)),
        place.prop_map(|(at, length)| Step::Discard(at, length)),
        Just(Step::Flush),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The whole log replayed onto zeros is the medium.
    #[test]
    fn the_log_replays_to_the_medium(steps in steps()) {
        let folder = tempfile::tempdir().expect("tempdir");
        let recorder = recorder(folder.path(), plain());
        let mut model = vec![0u8; 64 * 512];
        for step in &steps {
            let (kind, at, length, byte) = match *step {
                Step::Write(at, length, byte) => (Kind::Write, at, length, byte),
                Step::Zero(at, length) => (Kind::WriteZeroes, at, length, 0),
                Step::Discard(at, length) => (Kind::Discard, at, length, 0),
                Step::Flush => (Kind::Flush, 0, 0, 0),
            };
            let data = vec![byte; usize::try_from(length * 512).expect("fits")];
            let ticket = recorder.submit(kind, at * 512, length * 512);
            let carried: &[u8] = if kind == Kind::Write { &data } else { &[] };
            recorder.complete(ticket, carried).expect("complete");
            let start = usize::try_from(at * 512).expect("fits");
            model[start..start + data.len()].fill(byte);
        }
        let mut medium = vec![0u8; 64 * 512];
        recorder.read(0, &mut medium).expect("read");
        prop_assert_eq!(&medium, &model);

        let end = recorder.mark_base();
        prop_assert_eq!(end.0, steps.len() as u64 * 2);
        let recording = finished(folder.path(), &recorder, &[(end.0, "base".to_owned())]);
        let image = SharedMemory::new("image", SIZE).expect("memfd");
        plugpull_crash::state::explorer::replay_to_base(&recording, &plain(), &image);
        let mut replayed = vec![0u8; 64 * 512];
        prop_assert!(image.read(0, &mut replayed));
        prop_assert_eq!(&replayed, &model);
        prop_assert_eq!(walk(&folder.path().join("log")).len(), steps.len() + 1);
    }

    /// A side-car cut off or changed anywhere is an error, never a panic or other commands.
    #[test]
    fn a_damaged_side_car_is_refused(cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>(), bit in 0..8u8) {
        let folder = tempfile::tempdir().expect("tempdir");
        let recorder = recorder(folder.path(), plain());
        let device = RecordedDevice::new(&recorder);
        for index in 0..4 {
            device.write(ByteOffset(index * 512), &[9; 512], index == 2).expect("write");
        }
        let recording = finished(folder.path(), &recorder, &[]);
        let path = folder.path().join("log.idx");
        let whole = std::fs::read(&path).expect("side-car");
        std::fs::write(&path, &whole[..cut.index(whole.len())]).expect("cut");
        prop_assert!(read_index(&path).is_err());
        let mut flipped = whole.clone();
        flipped[flip.index(whole.len())] ^= 1 << bit;
        std::fs::write(&path, &flipped).expect("flip");
        match read_index(&path) {
            Err(_) => {}
            Ok((_, commands)) => prop_assert_eq!(commands.as_slice(), recording.commands()),
        }
    }
}
