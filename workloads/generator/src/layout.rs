//! Where the records of a planned workload lie, and whether they can lie there.

use std::collections::BTreeSet;

use plugpull_model::ledger::OperationId;
use plugpull_model::workload::{PlannedWorkload, PlannedWrite, PlannedWriter};
use plugpull_record::{RecordKey, RunId};

use crate::GeneratorError;

/// One object of the workload, and where its last record ends.
pub(crate) struct Area<'a> {
    pub(crate) object: &'a str,
    pub(crate) end_bytes: u64,
}

/// Every object once, in the order of the writers. Total: a plan from a damaged file gives areas
/// that [`check`] refuses.
pub(crate) fn areas(workload: &PlannedWorkload) -> Vec<Area<'_>> {
    let mut areas: Vec<Area<'_>> = Vec::new();
    for writer in &workload.writers {
        let end_bytes = end_of(workload, writer).unwrap_or(u64::MAX);
        match areas.iter_mut().find(|area| area.object == writer.object) {
            Some(area) => area.end_bytes = area.end_bytes.max(end_bytes),
            None => areas.push(Area {
                object: &writer.object,
                end_bytes,
            }),
        }
    }
    areas
}

fn end_of(workload: &PlannedWorkload, writer: &PlannedWriter) -> Option<u64> {
    u64::from(writer.records)
        .checked_mul(u64::from(workload.record_bytes))?
        .checked_add(writer.first_address.0)
}

/// Refuses what no plan of this version holds, so that the writers need not: records that cannot
/// exist, two writers of one stream or of one place.
pub(crate) fn check(workload: &PlannedWorkload) -> Result<(), GeneratorError> {
    let mut streams = BTreeSet::new();
    let mut ranges = Vec::with_capacity(workload.writers.len());
    for writer in &workload.writers {
        let place = || format!("stream {}", writer.stream);
        if !streams.insert(writer.stream) {
            return Err(GeneratorError::workload(place(), "two writers have it"));
        }
        let end_bytes = end_of(workload, writer)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| GeneratorError::workload(place(), "its records end beyond 2^63"))?;
        if writer.records > 0 {
            RecordKey {
                run: RunId([0; 16]),
                stream: writer.stream.0,
                sequence: 0,
                version: 1,
                address: writer.first_address.0,
                length: workload.record_bytes,
            }
            .check()
            .map_err(|error| GeneratorError::workload(place(), error.to_string()))?;
            ranges.push((writer.object.as_str(), writer.first_address.0, end_bytes));
        }
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if let [(left, _, left_end), (right, right_start, _)] = pair
            && left == right
            && left_end > right_start
        {
            return Err(GeneratorError::workload(
                format!("`{left}`"),
                format!("two writers write byte {right_start}"),
            ));
        }
    }
    Ok(())
}

/// Whether a name is one file right under the mount. Nothing else is ever opened.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0'])
}

/// [`check`], and that every object is a plain file name.
pub(crate) fn check_files(workload: &PlannedWorkload) -> Result<(), GeneratorError> {
    check(workload)?;
    for writer in &workload.writers {
        if !is_plain_name(&writer.object) {
            return Err(GeneratorError::workload(
                format!("stream {}", writer.stream),
                format!("{:?} is not a plain file name", writer.object),
            ));
        }
    }
    Ok(())
}

pub(crate) fn key_of(run: RunId, write: &PlannedWrite) -> RecordKey {
    RecordKey {
        run,
        stream: write.stream.0,
        sequence: write.sequence.0,
        version: write.version,
        address: write.address.0,
        length: write.length_bytes,
    }
}

pub(crate) fn operation_of(write: &PlannedWrite) -> OperationId {
    OperationId {
        stream: write.stream,
        sequence: write.sequence,
        version: write.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plugpull_model::units::{ByteOffset, StreamId};
    use plugpull_model::workload::{Acknowledge, LogFile};

    fn writer(stream: u32, object: &str, first_address: u64, records: u32) -> PlannedWriter {
        PlannedWriter {
            stream: StreamId(stream),
            object: object.to_owned(),
            first_address: ByteOffset(first_address),
            records,
        }
    }

    fn workload(record_bytes: u32, writers: Vec<PlannedWriter>) -> PlannedWorkload {
        PlannedWorkload {
            record_bytes,
            writers,
            file: LogFile::Growing,
            acknowledge: Acknowledge::Fsync,
            direct: false,
            pause_us: 0,
        }
    }

    #[test]
    fn an_object_of_two_writers_is_one_area_that_ends_with_the_later() {
        let workload = workload(
            512,
            vec![writer(0, "device", 0, 4), writer(1, "device", 2048, 4)],
        );
        check(&workload).unwrap();
        let areas = areas(&workload);
        assert_eq!(areas.len(), 1);
        assert_eq!(areas[0].end_bytes, 4096);
    }

    #[test]
    fn a_workload_that_cannot_be_written_is_refused_with_its_place() {
        for (record_bytes, writers, place) in [
            (
                512,
                vec![writer(3, "a", 0, 1), writer(3, "b", 0, 1)],
                "stream 3",
            ),
            (
                512,
                vec![writer(0, "a", 0, 4), writer(1, "a", 1024, 1)],
                "`a`",
            ),
            (512, vec![writer(2, "a", u64::MAX - 511, 1)], "stream 2"),
            (
                512,
                vec![writer(2, "a", i64::MAX as u64 - 511, 2)],
                "stream 2",
            ),
            (512, vec![writer(2, "a", 100, 1)], "stream 2"),
            (0, vec![writer(2, "a", 0, 1)], "stream 2"),
            (4000, vec![writer(2, "a", 0, 1)], "stream 2"),
        ] {
            let refused = check(&workload(record_bytes, writers)).unwrap_err();
            assert!(refused.to_string().contains(place), "{refused}");
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/etc/passwd",
            "a\0b",
            &"x".repeat(256),
        ] {
            assert!(
                check_files(&workload(512, vec![writer(0, name, 0, 1)])).is_err(),
                "{name}"
            );
        }
    }
}
