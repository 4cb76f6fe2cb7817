//! The breaches of single records in one look.

use plugpull_model::ledger::OperationId;
use plugpull_model::plan::PlannedCell;
use plugpull_model::stack::Filesystem;
use plugpull_model::units::{ByteOffset, Sector, Sequence};
use plugpull_model::verdict::{Breach, Detection, Fate, FindingKind, RecordRef};

use crate::fate::{Cut, Evidence, Survivors};
use crate::inspect::Inspection;
use crate::look::{Look, PLANNED_VERSION, Place, StreamLook, operation, stream_of, walk};
use crate::words::sighting_words;

/// The object of a breach of no record: the file system, or the device of a raw stack.
pub(crate) fn stack_object(cell: &PlannedCell) -> &'static str {
    match cell.stack.filesystem {
        Filesystem::None => "device",
        Filesystem::Ext4 => "file system",
    }
}

/// Judges the records of one inspection at one cut.
pub(crate) struct Bench<'a> {
    pub(crate) cell: &'a PlannedCell,
    pub(crate) cut: Cut<'a>,
    pub(crate) inspection: &'a Inspection,
}

/// One breach in the making.
struct Charge<'a> {
    kind: FindingKind,
    expected: Fate,
    observed: String,
    newer_survives: bool,
    second: bool,
    place: &'a Place<'a>,
}

impl Bench<'_> {
    /// What the raw bytes show right after recovery.
    pub(crate) fn judge_first(&self, breaches: &mut Vec<Breach>) {
        self.judge_look(&self.inspection.first, false, breaches);
    }

    /// What they show after the stack was used once more, and did not show before.
    pub(crate) fn judge_second(&self, second: &Look, breaches: &mut Vec<Breach>) {
        self.judge_look(second, true, breaches);
    }

    fn judge_look(&self, look: &Look, second: bool, breaches: &mut Vec<Breach>) {
        let evidence = Evidence::Raw;
        let mut survivors = Survivors::new(look, evidence);
        let before = breaches.len();
        walk(look, self.cut.ledger, |place| {
            let Some(kind) = self.cut.kind(place) else {
                return;
            };
            if second && self.is_breach_at_first(place) {
                return;
            }
            let fate = self.cut.fate(place.entry);
            let mut observed = sighting_words(place.sighting);
            if kind == FindingKind::Unexpected {
                observed.push_str(&issue_words(place));
            } else if !second && self.inspection.disagrees(place.seen.stream, place.sequence) {
                observed.push_str("; the workload's recovery gave the record back all the same");
            }
            let charge = Charge {
                kind,
                expected: match (kind, fate) {
                    (FindingKind::Unexpected, Fate::Permitted) => Fate::Forbidden,
                    _ => fate,
                },
                observed,
                newer_survives: evidence.later(place.seen, place.sequence).is_some(),
                second,
                place,
            };
            self.charge(charge, &mut survivors, breaches);
        });
        for seen in look {
            self.judge_file(seen, second, before, breaches);
        }
    }

    /// A required record that is whole and was not given back, or one that was given back and is not
    /// whole; and records from nowhere.
    pub(crate) fn judge_recovery(&self, breaches: &mut Vec<Breach>) {
        let evidence = Evidence::GivenBack(self.inspection);
        let mut survivors = Survivors::new(&self.inspection.first, evidence);
        for (stream, sequence) in &self.inspection.disagreements {
            let Some(place) = self.first_place(operation(*stream, *sequence)) else {
                continue;
            };
            let fate = self.cut.fate(place.entry);
            let hidden = place.sighting.is_intact();
            // What the raw bytes breach by themselves is reported already.
            if self.cut.kind(&place).is_some() || (hidden && fate != Fate::Required) {
                continue;
            }
            let charge = Charge {
                kind: if hidden {
                    FindingKind::Lost
                } else {
                    FindingKind::Corrupt
                },
                expected: fate,
                observed: if hidden {
                    "the whole record is there and the workload's recovery did not give it back"
                        .to_owned()
                } else {
                    format!(
                        "the workload's recovery gave back a record that is not there: {}",
                        sighting_words(place.sighting)
                    )
                },
                newer_survives: evidence.later(place.seen, *sequence).is_some(),
                second: false,
                place: &place,
            };
            self.charge(charge, &mut survivors, breaches);
        }
        for id in &self.inspection.invented {
            let issued = self
                .cut
                .ledger
                .get(id)
                .is_some_and(|state| state.issued_at <= self.cut.at);
            if !issued {
                breaches.push(self.invented(id));
            }
        }
    }

    /// Adds the breach, and under the order promise the one that a survivor makes of it.
    fn charge(
        &self,
        charge: Charge<'_>,
        survivors: &mut Survivors<'_>,
        breaches: &mut Vec<Breach>,
    ) {
        let (kind, place, second) = (charge.kind, charge.place, charge.second);
        let acknowledged = self.cut.acknowledged(place.entry);
        let breaker = acknowledged
            .and_then(|acknowledged| survivors.order_breaker(&self.cut, place, &acknowledged));
        // What survived the recovery is no longer inside the window.
        let contractual = kind != FindingKind::Unexpected
            && !second
            && breaker.is_none()
            && acknowledged.is_some_and(|acknowledged| self.cut.in_loss_window(&acknowledged));
        breaches.push(Breach {
            contractual,
            ..self.breach(charge)
        });
        if let Some(breaker) = breaker {
            breaches.push(self.breach(Charge {
                kind: FindingKind::Unserializable,
                expected: Fate::Required,
                observed: format!(
                    "not there, and stream {} sequence {}, issued after its acknowledgement, is",
                    breaker.stream, breaker.sequence
                ),
                newer_survives: false,
                second,
                place,
            }));
        }
    }

    fn breach(&self, charge: Charge<'_>) -> Breach {
        let place = charge.place;
        let writer = self.cell.workload.writers.get(place.seen.writer);
        let offset = writer
            .and_then(|writer| self.cell.workload.write(writer, place.sequence))
            .map(|write| write.address);
        let acknowledged = self.cut.acknowledged(place.entry);
        Breach {
            kind: charge.kind,
            object: self.object(place.seen),
            record: Some(RecordRef {
                stream: place.seen.stream,
                sequence: Sequence(u64::from(place.sequence)),
                version: PLANNED_VERSION,
            }),
            expected: charge.expected,
            observed: charge.observed,
            offset,
            sector: self.sector(offset),
            newer_survives: charge.kind == FindingKind::Lost && charge.newer_survives,
            after_recovery: charge.second,
            detection: self.detection(charge.kind, charge.second),
            acknowledged_at: acknowledged.map(|acknowledged| acknowledged.at),
            ledger_line: acknowledged.map(|acknowledged| acknowledged.line),
            contractual: false,
        }
    }

    /// A file that is gone, if that is not the loss of any record yet.
    fn judge_file(
        &self,
        seen: &StreamLook,
        second: bool,
        before: usize,
        breaches: &mut Vec<Breach>,
    ) {
        let Some(sighting) = seen.no_file() else {
            return;
        };
        let already = breaches.iter().skip(before).any(|breach| {
            breach
                .record
                .as_ref()
                .is_some_and(|record| record.stream == seen.stream)
        });
        let gone_at_first = || {
            stream_of(&self.inspection.first, seen.stream)
                .is_some_and(|first| first.no_file().is_some())
        };
        if already || (second && gone_at_first()) {
            return;
        }
        breaches.push(Breach {
            kind: FindingKind::Lost,
            object: self.object(seen),
            record: None,
            expected: Fate::Required,
            observed: format!(
                "{}; it was made durable before the first record",
                sighting_words(sighting)
            ),
            offset: None,
            sector: None,
            newer_survives: false,
            after_recovery: second,
            detection: self.detection(FindingKind::Lost, second),
            acknowledged_at: None,
            ledger_line: None,
            contractual: false,
        });
    }

    fn invented(&self, id: &OperationId) -> Breach {
        let seen = stream_of(&self.inspection.first, id.stream);
        Breach {
            kind: FindingKind::Unexpected,
            object: seen.map_or_else(
                || stack_object(self.cell).to_owned(),
                |seen| self.object(seen),
            ),
            record: Some(RecordRef {
                stream: id.stream,
                sequence: id.sequence,
                version: id.version,
            }),
            expected: Fate::Forbidden,
            observed: "the workload's recovery gave back a record that the plan never issues"
                .to_owned(),
            offset: None,
            sector: None,
            newer_survives: false,
            after_recovery: false,
            detection: self.detection(FindingKind::Unexpected, false),
            acknowledged_at: None,
            ledger_line: None,
            contractual: false,
        }
    }

    /// Whether a record was a breach right after recovery, by its raw bytes or by what was given back.
    fn is_breach_at_first(&self, second: &Place<'_>) -> bool {
        self.first_place(operation(second.seen.stream, second.sequence))
            .is_some_and(|place| {
                let disagrees = self.inspection.disagrees(place.seen.stream, place.sequence);
                let hidden = place.sighting.is_intact();
                let by_recovery =
                    disagrees && (!hidden || self.cut.fate(place.entry) == Fate::Required);
                by_recovery || self.cut.kind(&place).is_some()
            })
    }

    fn first_place(&self, id: OperationId) -> Option<Place<'_>> {
        let seen = stream_of(&self.inspection.first, id.stream)?;
        let sequence = u32::try_from(id.sequence.0).ok()?;
        Some(Place {
            seen,
            sequence,
            sighting: seen.at(sequence)?,
            entry: self.cut.ledger.get(&id),
        })
    }

    fn object(&self, seen: &StreamLook) -> String {
        let writer = self.cell.workload.writers.get(seen.writer);
        writer.map_or_else(String::new, |writer| writer.object.clone())
    }

    fn sector(&self, offset: Option<ByteOffset>) -> Option<Sector> {
        offset
            .filter(|_| self.cell.stack.filesystem == Filesystem::None)
            .map(ByteOffset::sector)
    }

    /// Whether anything in this image said that something is wrong: the read itself, the kernel, and
    /// in the second look also the checker and the use.
    fn detection(&self, kind: FindingKind, second: bool) -> Detection {
        let used = self.inspection.used.as_ref().filter(|_| second);
        let said = kind == FindingKind::Unreadable
            || self.inspection.kernel_faults.is_some()
            || used.is_some_and(|used| used.damage.is_some() || used.failed.is_some());
        if said {
            Detection::Detected
        } else {
            Detection::Silent
        }
    }
}

/// Why what is there is unexpected.
fn issue_words(place: &Place<'_>) -> String {
    match place.entry {
        _ if !place.sighting.is_intact() => "; the plan never issues that version".to_owned(),
        Some(entry) => format!(
            "; it is issued at position {}, after the cut",
            entry.issued_at
        ),
        None => "; it was never issued".to_owned(),
    }
}
