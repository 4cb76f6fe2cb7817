//! What the ledger and the contract say of one record at one cut.

use plugpull_model::ledger::{Acknowledgement, Ledger, OperationId, OperationState};
use plugpull_model::scenario::{ContractSpec, Order};
use plugpull_model::units::Position;
use plugpull_model::verdict::{Fate, FindingKind};
use plugpull_record::Class;

use crate::inspect::Inspection;
use crate::look::{Look, Place, Sighting, StreamLook, operation, walk};

const NS_PER_MS: u64 = 1_000_000;

/// The ledger and the contract at one cut.
#[derive(Clone, Copy)]
pub(crate) struct Cut<'a> {
    pub(crate) contract: &'a ContractSpec,
    pub(crate) ledger: &'a Ledger,
    pub(crate) at: Position,
    pub(crate) time_ns: u64,
    /// The ledger is proved complete to this cut.
    pub(crate) complete: bool,
}

impl Cut<'_> {
    /// The acknowledgement that makes a record required.
    pub(crate) fn acknowledged(&self, entry: Option<&OperationState>) -> Option<Acknowledgement> {
        entry?
            .acknowledged
            .filter(|acknowledged| acknowledged.at <= self.at)
    }

    pub(crate) fn fate(&self, entry: Option<&OperationState>) -> Fate {
        match entry {
            Some(_) if self.acknowledged(entry).is_some() => Fate::Required,
            Some(state) if state.issued_at <= self.at => Fate::Permitted,
            _ => Fate::Forbidden,
        }
    }

    /// Which kind of breach the sighting is, if it is one.
    pub(crate) fn kind(&self, place: &Place<'_>) -> Option<FindingKind> {
        let fate = self.fate(place.entry);
        match place.sighting {
            Sighting::NotReached => None,
            Sighting::Read(Class::Intact) => {
                (fate == Fate::Forbidden && self.complete).then_some(FindingKind::Unexpected)
            }
            Sighting::Read(Class::Newer { version }) => {
                // The plan issues no second version: an incomplete ledger cannot excuse one.
                let newer = OperationId {
                    version: *version,
                    ..operation(place.seen.stream, place.sequence)
                };
                let issued = self
                    .ledger
                    .get(&newer)
                    .is_some_and(|state| state.issued_at <= self.at);
                (!issued).then_some(FindingKind::Unexpected)
            }
            _ if fate != Fate::Required => None,
            Sighting::Read(class) => Some(match class {
                Class::Torn { .. } => FindingKind::Torn,
                Class::Shorn { .. } => FindingKind::Shorn,
                Class::Stale { .. } => FindingKind::Stale,
                Class::Foreign { .. } => FindingKind::Foreign,
                Class::Misdirected { .. } => FindingKind::Misdirected,
                Class::Corrupt { .. } => FindingKind::Corrupt,
                Class::Intact | Class::Newer { .. } | Class::Absent | Class::Short { .. } => {
                    FindingKind::Lost
                }
            }),
            Sighting::PastEnd { .. } | Sighting::Missing | Sighting::Unlisted => {
                Some(FindingKind::Lost)
            }
            Sighting::Unreadable { .. } => Some(FindingKind::Unreadable),
        }
    }

    /// Whether a record acknowledged then is *younger* than the loss window at the cut.
    pub(crate) fn in_loss_window(&self, acknowledged: &Acknowledgement) -> bool {
        let age_ns = self.time_ns.saturating_sub(acknowledged.time_ns);
        age_ns < u64::from(self.contract.loss_window_ms).saturating_mul(NS_PER_MS)
    }
}

/// When something happened: the drive's position, and the clock between two equal positions.
type Moment = (Position, u64);

/// What counts as being there.
#[derive(Clone, Copy)]
pub(crate) enum Evidence<'a> {
    /// The raw bytes.
    Raw,
    /// The raw bytes of what the workload's recovery gave back.
    GivenBack(&'a Inspection),
}

impl Evidence<'_> {
    fn shows(self, place: &Place<'_>) -> bool {
        place.sighting.is_intact()
            && match self {
                Evidence::Raw => true,
                Evidence::GivenBack(inspection) => {
                    !inspection.disagrees(place.seen.stream, place.sequence)
                }
            }
    }

    /// The last record of the stream that is there, if it comes after `sequence`.
    pub(crate) fn later(self, seen: &StreamLook, sequence: u32) -> Option<u32> {
        match self {
            Evidence::Raw => seen.last_intact,
            Evidence::GivenBack(_) => seen.last_given_back,
        }
        .filter(|last| *last > sequence)
    }
}

/// The order promise over one look. What it needs is made when it is first needed.
pub(crate) struct Survivors<'a> {
    look: &'a Look,
    evidence: Evidence<'a>,
    /// The record there that was issued last, once it was searched for.
    latest: Option<Option<(Moment, OperationId)>>,
}

impl<'a> Survivors<'a> {
    pub(crate) fn new(look: &'a Look, evidence: Evidence<'a>) -> Self {
        Survivors {
            look,
            evidence,
            latest: None,
        }
    }

    /// A record that breaks the order promise by being there while the one at `place`, acknowledged
    /// then, is not: a later one of the same stream, or one issued after the acknowledgement.
    ///
    /// A writer acknowledges each record before it writes the next. Between streams the clock tells
    /// the order of two equal positions; what neither settles is no breach.
    pub(crate) fn order_breaker(
        &mut self,
        cut: &Cut<'_>,
        place: &Place<'_>,
        acknowledged: &Acknowledgement,
    ) -> Option<OperationId> {
        if cut.contract.order == Order::None {
            return None;
        }
        if let Some(later) = self.evidence.later(place.seen, place.sequence) {
            return Some(operation(place.seen.stream, later));
        }
        let (look, evidence) = (self.look, self.evidence);
        self.latest
            .get_or_insert_with(|| latest_issued(look, cut.ledger, evidence))
            .filter(|(issued, _)| *issued > (acknowledged.at, acknowledged.time_ns))
            .map(|(_, id)| id)
    }
}

fn latest_issued(
    look: &Look,
    ledger: &Ledger,
    evidence: Evidence<'_>,
) -> Option<(Moment, OperationId)> {
    let mut latest: Option<(Moment, OperationId)> = None;
    walk(look, ledger, |place| {
        let Some(entry) = place.entry.filter(|_| evidence.shows(place)) else {
            return;
        };
        let moment = (entry.issued_at, entry.issued_ns);
        if latest.is_none_or(|(latest, _)| latest < moment) {
            latest = Some((moment, operation(place.seen.stream, place.sequence)));
        }
    });
    latest
}

#[cfg(test)]
mod tests {
    use super::*;
    use plugpull_model::ledger::LedgerLine;
    use plugpull_model::units::StreamId;

    /// An append-log writes every address once, so that no image of it holds an older version: the one
    /// kind that has to be tried from inside.
    #[test]
    fn a_whole_older_version_is_stale_where_a_record_is_required_and_nothing_where_it_is_not() {
        let mut ledger = Ledger::default();
        let issue = LedgerLine::Issued {
            operation: operation(StreamId(0), 0),
            at: Position(1),
            time_ns: 0,
        };
        let acknowledge = LedgerLine::Acknowledged {
            operation: operation(StreamId(0), 0),
            at: Position(5),
            time_ns: 0,
            latency_ns: 0,
        };
        ledger.push(issue).expect("issued");
        ledger.push(acknowledge).expect("acknowledged");
        let seen = StreamLook {
            writer: 0,
            stream: StreamId(0),
            runs: Vec::new(),
            last_intact: None,
            last_given_back: None,
        };
        let sighting = Sighting::Read(Class::Stale { version: 0 });
        let place = Place {
            seen: &seen,
            sequence: 0,
            sighting: &sighting,
            entry: ledger.get(&operation(StreamId(0), 0)),
        };
        let kind_at = |at| {
            let cut = Cut {
                contract: &ContractSpec::default(),
                ledger: &ledger,
                at: Position(at),
                time_ns: 0,
                complete: true,
            };
            cut.kind(&place)
        };
        assert_eq!(kind_at(5), Some(FindingKind::Stale));
        assert_eq!(kind_at(4), None);
    }
}
