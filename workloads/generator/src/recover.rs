//! What the append-log itself would do when it starts again.

use plugpull_model::ledger::OperationId;
use plugpull_model::observation::{ObservedContent, ObservedObject};
use plugpull_model::seams::Recovered;
use plugpull_model::units::Sequence;
use plugpull_model::workload::{PlannedWorkload, PlannedWriter};
use plugpull_record::{RecordKey, RunId, decode};

/// The append-log's own recovery: each stream is scanned from its start, and ends at the first
/// record that is not whole, valid, and the next one of this stream and this run.
///
/// It trusts the checksums, as a log does, and it does not know how many records were planned: a
/// record behind the last planned one is given back like any other. What the bytes really are is
/// for the oracle to say.
#[must_use]
pub fn recover(run: RunId, workload: &PlannedWorkload, objects: &[ObservedObject]) -> Recovered {
    let mut recovered = Recovered::default();
    for writer in &workload.writers {
        let scan = Scan {
            run,
            writer,
            record_bytes: workload.record_bytes,
        };
        let object = objects.iter().find(|object| object.name == writer.object);
        if let Some(note) = scan.recover(object.map(|object| &object.content), &mut recovered) {
            recovered.notes.push(note);
        }
    }
    recovered
}

struct Scan<'a> {
    run: RunId,
    writer: &'a PlannedWriter,
    record_bytes: u32,
}

impl Scan<'_> {
    /// Adds the records of the stream, and returns the note that it deserves.
    fn recover(
        &self,
        content: Option<&ObservedContent>,
        recovered: &mut Recovered,
    ) -> Option<String> {
        let (bytes, errno) = match content {
            Some(ObservedContent::Bytes(bytes)) => (bytes.as_slice(), None),
            Some(ObservedContent::Unreadable { before, errno }) => {
                (before.as_slice(), Some(*errno))
            }
            Some(ObservedContent::Missing) => return Some(self.note(0, "there is no such file")),
            None => return Some(self.note(0, "it was not read")),
        };
        let mut sequence = 0;
        let reason = loop {
            match self.next(sequence, bytes) {
                Ok(()) => {
                    recovered.records.insert(OperationId {
                        stream: self.writer.stream,
                        sequence: Sequence(sequence),
                        version: 1,
                    });
                    sequence += 1;
                }
                Err(reason) => break reason,
            }
        };
        let planned = u64::from(self.writer.records);
        if sequence == planned {
            return None;
        }
        let reason = match errno {
            Some(errno) => format!(
                "reading failed at byte {}: {}",
                bytes.len(),
                std::io::Error::from_raw_os_error(errno)
            ),
            None => reason,
        };
        Some(self.note(sequence, &reason))
    }

    /// Whether the record of this number is there, or why not.
    fn next(&self, sequence: u64, bytes: &[u8]) -> Result<(), String> {
        let length = self.record_bytes as usize;
        let address = sequence
            .checked_mul(u64::from(self.record_bytes))
            .and_then(|offset| offset.checked_add(self.writer.first_address.0));
        let rest = address
            .and_then(|address| usize::try_from(address).ok())
            .and_then(|start| bytes.get(start..))
            .unwrap_or_default();
        let (Some(address), false) = (address, rest.is_empty() || length == 0) else {
            return Err("the bytes end here".to_owned());
        };
        let found =
            decode(rest.get(..length).unwrap_or(rest)).map_err(|error| error.to_string())?;
        let expected = RecordKey {
            run: self.run,
            stream: self.writer.stream.0,
            sequence,
            version: 1,
            address,
            length: self.record_bytes,
        };
        if found == expected {
            Ok(())
        } else {
            Err(format!("here lies {found}"))
        }
    }

    fn note(&self, records: u64, reason: &str) -> String {
        let address = records
            .saturating_mul(u64::from(self.record_bytes))
            .saturating_add(self.writer.first_address.0);
        format!(
            "stream {}: {records} of {} records; stops at byte {address} of `{}`: {reason}",
            self.writer.stream, self.writer.records, self.writer.object
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plugpull_model::units::{ByteOffset, StreamId};
    use plugpull_model::workload::{Acknowledge, LogFile};
    use plugpull_record::encode;

    const RUN: RunId = RunId([9; 16]);
    const LENGTH: u32 = 1024;

    fn workload(writers: &[(&str, u64, u32)]) -> PlannedWorkload {
        PlannedWorkload {
            record_bytes: LENGTH,
            writers: (0..)
                .zip(writers)
                .map(|(stream, (object, first_address, records))| PlannedWriter {
                    stream: StreamId(stream),
                    object: (*object).to_owned(),
                    first_address: ByteOffset(*first_address),
                    records: *records,
                })
                .collect(),
            file: LogFile::Growing,
            acknowledge: Acknowledge::Fdatasync,
            direct: false,
            pause_us: 0,
        }
    }

    fn record(run: RunId, stream: u32, sequence: u64, address: u64) -> Vec<u8> {
        let key = RecordKey {
            run,
            stream,
            sequence,
            version: 1,
            address,
            length: LENGTH,
        };
        let mut bytes = vec![0; LENGTH as usize];
        encode(&key, &mut bytes).unwrap();
        bytes
    }

    fn log(records: u64) -> Vec<u8> {
        (0..records)
            .flat_map(|sequence| record(RUN, 0, sequence, sequence * u64::from(LENGTH)))
            .collect()
    }

    fn recovered(records: u32, bytes: Vec<u8>) -> (u64, Vec<String>) {
        let objects = [ObservedObject {
            name: "log-0".to_owned(),
            content: ObservedContent::Bytes(bytes),
        }];
        let recovered = recover(RUN, &workload(&[("log-0", 0, records)]), &objects);
        let sequences: Vec<u64> = recovered.records.iter().map(|id| id.sequence.0).collect();
        let count = sequences.len() as u64;
        assert_eq!(sequences, (0..count).collect::<Vec<_>>());
        (count, recovered.notes)
    }

    #[test]
    fn a_whole_log_is_given_back_without_a_note() {
        assert_eq!(recovered(4, log(4)), (4, vec![]));
    }

    #[test]
    fn recovery_stops_at_the_first_bad_record_whatever_follows_it() {
        let mut flipped = log(4);
        flipped[1024 + 700] ^= 1;
        let mut zeroed = log(4);
        zeroed[1024..2048].fill(0);
        let mut stale = log(4);
        stale[1024..2048].copy_from_slice(&record(RunId([1; 16]), 0, 1, 1024));
        let mut other_place = log(4);
        other_place[1024..2048].copy_from_slice(&record(RUN, 0, 2, 2048));
        for bytes in [flipped, zeroed, stale, other_place] {
            let (count, notes) = recovered(4, bytes);
            assert_eq!(count, 1);
            assert!(
                notes[0].contains("1 of 4 records; stops at byte 1024 of `log-0`"),
                "{notes:?}"
            );
        }
    }

    #[test]
    fn a_log_that_ends_within_a_record_stops_before_it() {
        for length in [1024, 1025, 1600, 2047] {
            let mut bytes = log(4);
            bytes.truncate(length);
            let (count, notes) = recovered(4, bytes);
            assert_eq!((count, notes.len()), (1, 1), "{length}");
        }
    }

    #[test]
    fn a_record_behind_the_planned_ones_is_given_back_and_noted() {
        let (count, notes) = recovered(3, log(4));
        assert_eq!(count, 4);
        assert!(notes[0].contains("4 of 3"), "{notes:?}");
    }

    #[test]
    fn a_missing_or_unreadable_log_says_so() {
        let plan = workload(&[("log-0", 0, 4), ("log-1", 0, 4), ("log-2", 0, 4)]);
        let objects = [
            ObservedObject {
                name: "log-0".to_owned(),
                content: ObservedContent::Missing,
            },
            ObservedObject {
                name: "log-1".to_owned(),
                content: ObservedContent::Unreadable {
                    before: vec![0; 100],
                    errno: libc::EIO,
                },
            },
        ];
        let recovered = recover(RUN, &plan, &objects);
        assert!(recovered.records.is_empty());
        for (note, words) in
            recovered
                .notes
                .iter()
                .zip(["no such file", "reading failed at byte 100", "not read"])
        {
            assert!(note.contains(words), "{note}");
        }
    }

    #[test]
    fn streams_on_one_device_do_not_run_into_each_other() {
        let plan = workload(&[("device", 0, 2), ("device", 2048, 2)]);
        let bytes = [
            record(RUN, 0, 0, 0),
            record(RUN, 0, 1, 1024),
            record(RUN, 1, 0, 2048),
            record(RUN, 1, 1, 3072),
        ]
        .concat();
        let objects = [ObservedObject {
            name: "device".to_owned(),
            content: ObservedContent::Bytes(bytes),
        }];
        let recovered = recover(RUN, &plan, &objects);
        assert_eq!(recovered.records.len(), 4);
        assert!(recovered.notes.is_empty());
    }

    #[test]
    fn a_plan_without_sense_recovers_nothing_and_ends() {
        let mut plan = workload(&[("log-0", u64::MAX, 4)]);
        let objects = [ObservedObject {
            name: "log-0".to_owned(),
            content: ObservedContent::Bytes(log(2)),
        }];
        assert!(recover(RUN, &plan, &objects).records.is_empty());
        plan.record_bytes = 0;
        plan.writers[0].first_address = ByteOffset(0);
        assert!(recover(RUN, &plan, &objects).records.is_empty());
    }
}
