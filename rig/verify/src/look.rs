//! What lies at the place of every planned record, in runs of equal sightings.

use std::ops::Range;

use plugpull_model::ledger::{Ledger, OperationId, OperationState};
use plugpull_model::observation::{ObservedContent, ObservedObject};
use plugpull_model::plan::PlannedCell;
use plugpull_model::units::{Sequence, StreamId};
use plugpull_model::workload::PlannedWriter;
use plugpull_record::{Class, Expected, RecordKey, RunId, classify};

/// The only version of an address that an append-log writes.
pub(crate) const PLANNED_VERSION: u32 = 1;

/// The planned operation at a place of a stream.
pub(crate) fn operation(stream: StreamId, sequence: u32) -> OperationId {
    OperationId {
        stream,
        sequence: Sequence(u64::from(sequence)),
        version: PLANNED_VERSION,
    }
}

/// What was seen at the place of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    /// Bytes were read; they may end inside the record.
    Read(Class),
    /// The object ends before the record begins.
    PastEnd {
        /// Its length.
        end_bytes: u64,
    },
    /// There is no such file.
    Missing,
    /// The observation does not say anything of the object. It ought to: judged as missing.
    Unlisted,
    /// Reading failed before the end of the record.
    Unreadable {
        /// Where.
        from_bytes: u64,
        /// The error number.
        errno: i32,
    },
    /// A second look that failed before it came to this object: nothing is known.
    NotReached,
}

impl Sighting {
    /// Whether the expected record is there, byte for byte.
    pub(crate) fn is_intact(&self) -> bool {
        matches!(self, Sighting::Read(Class::Intact))
    }

    /// Whether some version of the record is there whole: what may be unexpected.
    fn may_be_unexpected(&self) -> bool {
        matches!(self, Sighting::Read(Class::Intact | Class::Newer { .. }))
    }

    /// Whether there is no file at all.
    pub(crate) fn is_no_file(&self) -> bool {
        matches!(self, Sighting::Missing | Sighting::Unlisted)
    }
}

/// Neighbouring records of one stream with one sighting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    first: u32,
    records: u32,
    pub(crate) sighting: Sighting,
}

impl Run {
    pub(crate) fn sequences(&self) -> Range<u32> {
        self.first..self.first.saturating_add(self.records)
    }
}

/// The records of one stream, without a gap from sequence 0 to the last planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamLook {
    /// Index of the writer in the plan.
    pub(crate) writer: usize,
    pub(crate) stream: StreamId,
    pub(crate) runs: Vec<Run>,
    /// The highest sequence that is intact.
    pub(crate) last_intact: Option<u32>,
    /// The highest sequence that is intact and given back by the workload's recovery. First look only.
    pub(crate) last_given_back: Option<u32>,
}

impl StreamLook {
    fn push(&mut self, first: u32, records: u32, sighting: Sighting) {
        if records == 0 {
            return;
        }
        if sighting.is_intact() {
            self.last_intact = Some(first.saturating_add(records - 1));
        }
        match self.runs.last_mut() {
            Some(run) if run.sighting == sighting => {
                run.records = run.records.saturating_add(records);
            }
            _ => self.runs.push(Run {
                first,
                records,
                sighting,
            }),
        }
    }

    /// The sighting of one record, if the plan has it.
    pub(crate) fn at(&self, sequence: u32) -> Option<&Sighting> {
        let after = self.runs.partition_point(|run| run.first <= sequence);
        let run = self.runs.get(after.checked_sub(1)?)?;
        run.sequences().contains(&sequence).then_some(&run.sighting)
    }

    /// The sighting that all records share when there is no file.
    pub(crate) fn no_file(&self) -> Option<&Sighting> {
        self.runs
            .first()
            .map(|run| &run.sighting)
            .filter(|sighting| sighting.is_no_file())
    }
}

/// One look at all objects, by stream.
pub(crate) type Look = Vec<StreamLook>;

/// The stream of a look with this id.
pub(crate) fn stream_of(look: &Look, stream: StreamId) -> Option<&StreamLook> {
    let index = look.binary_search_by_key(&stream, |seen| seen.stream);
    look.get(index.ok()?)
}

/// Looks at the place of every planned record. `unlisted` is the sighting of the records of an object
/// that is not among `objects`.
pub(crate) fn look(
    cell: &PlannedCell,
    run: RunId,
    objects: &[ObservedObject],
    unlisted: Sighting,
) -> Look {
    let mut look: Look = cell
        .workload
        .writers
        .iter()
        .enumerate()
        .map(|(index, writer)| {
            let mut seen = StreamLook {
                writer: index,
                stream: writer.stream,
                runs: Vec::new(),
                last_intact: None,
                last_given_back: None,
            };
            let object = objects.iter().find(|object| object.name == writer.object);
            match object.map(|object| &object.content) {
                None => seen.push(0, writer.records, unlisted),
                Some(ObservedContent::Missing) => seen.push(0, writer.records, Sighting::Missing),
                Some(ObservedContent::Bytes(bytes)) => {
                    read(&mut seen, cell, run, writer, bytes, None);
                }
                Some(ObservedContent::Unreadable { before, errno }) => {
                    read(&mut seen, cell, run, writer, before, Some(*errno));
                }
            }
            seen
        })
        .collect();
    look.sort_by_key(|seen| seen.stream);
    look
}

/// Classifies the records of one writer. With an `errno` the bytes end because reading failed there.
fn read(
    seen: &mut StreamLook,
    cell: &PlannedCell,
    run: RunId,
    writer: &PlannedWriter,
    bytes: &[u8],
    errno: Option<i32>,
) {
    let end_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let beyond = match errno {
        None => Sighting::PastEnd { end_bytes },
        Some(errno) => Sighting::Unreadable {
            from_bytes: end_bytes,
            errno,
        },
    };
    for sequence in 0..writer.records {
        let Some(write) = cell.workload.write(writer, sequence) else {
            return;
        };
        let from = usize::try_from(write.address.0).unwrap_or(usize::MAX);
        let rest = bytes.get(from..).unwrap_or_default();
        let whole = usize::try_from(write.length_bytes).is_ok_and(|length| rest.len() >= length);
        if rest.is_empty() || (errno.is_some() && !whole) {
            // The addresses of one writer ascend: so are all that follow.
            seen.push(sequence, writer.records - sequence, beyond);
            return;
        }
        let expected = Expected {
            key: RecordKey {
                run,
                stream: write.stream.0,
                sequence: write.sequence.0,
                version: write.version,
                address: write.address.0,
                length: write.length_bytes,
            },
            logical_block_bytes: cell.drive.logical_block_bytes,
        };
        seen.push(sequence, 1, Sighting::Read(classify(rest, &expected)));
    }
}

/// One record's place: what was seen there, and what the ledger knows of it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) seen: &'a StreamLook,
    pub(crate) sequence: u32,
    pub(crate) sighting: &'a Sighting,
    pub(crate) entry: Option<&'a OperationState>,
}

/// Visits, by stream and sequence, every planned record that the ledger knows, and every further one
/// whose place holds a whole record. The look and the ledger are each read once, side by side.
pub(crate) fn walk<'a>(look: &'a Look, ledger: &'a Ledger, mut visit: impl FnMut(&Place<'a>)) {
    let mut entries = ledger.iter().peekable();
    for seen in look {
        for run in &seen.runs {
            let sighting = &run.sighting;
            let Range { start, end } = run.sequences();
            if sighting.may_be_unexpected() {
                for sequence in start..end {
                    let id = operation(seen.stream, sequence);
                    while entries.next_if(|(other, _)| **other < id).is_some() {}
                    let entry = entries.next_if(|(other, _)| **other == id);
                    visit(&Place {
                        seen,
                        sequence,
                        sighting,
                        entry: entry.map(|(_, state)| state),
                    });
                }
            } else {
                let from = operation(seen.stream, start);
                let to = operation(seen.stream, end);
                while let Some((id, state)) = entries.next_if(|(other, _)| **other < to) {
                    let planned = *id >= from && id.version == PLANNED_VERSION;
                    if let (true, Ok(sequence)) = (planned, u32::try_from(id.sequence.0)) {
                        visit(&Place {
                            seen,
                            sequence,
                            sighting,
                            entry: Some(state),
                        });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(runs: &[(u32, Sighting)]) -> StreamLook {
        let mut seen = StreamLook {
            writer: 0,
            stream: StreamId(0),
            runs: Vec::new(),
            last_intact: None,
            last_given_back: None,
        };
        let mut first = 0;
        for (records, sighting) in runs {
            seen.push(first, *records, *sighting);
            first += records;
        }
        seen
    }

    #[test]
    fn neighbours_of_one_sighting_are_one_run() {
        let intact = Sighting::Read(Class::Intact);
        let seen = stream(&[
            (1, intact),
            (1, intact),
            (0, Sighting::Missing),
            (3, Sighting::Missing),
        ]);
        assert_eq!(seen.runs.len(), 2);
        assert_eq!(seen.last_intact, Some(1));
    }

    #[test]
    fn a_record_is_found_in_its_run_and_not_beyond_the_last() {
        let intact = Sighting::Read(Class::Intact);
        let seen = stream(&[(2, intact), (3, Sighting::Missing)]);
        assert_eq!(seen.at(1), Some(&intact));
        assert_eq!(seen.at(2), Some(&Sighting::Missing));
        assert_eq!(seen.at(4), Some(&Sighting::Missing));
        assert_eq!(seen.at(5), None);
        assert_eq!(stream(&[]).at(0), None);
    }
}
