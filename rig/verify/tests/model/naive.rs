//! The second oracle.

use plugpull_model::ledger::{LedgerLine, OperationId};
use plugpull_model::scenario::Order;
use plugpull_model::verdict::{Breach, FindingKind};

use crate::case::{Case, Fault, LookCase, Plant};
use crate::common::{RECORD_BYTES, op};

/// What the second oracle finds, comparable: kind, record, newer survives, after recovery, contractual.
pub type Found = (FindingKind, Option<(u32, u64)>, bool, bool, bool);

pub fn found(breach: &Breach) -> Found {
    (
        breach.kind,
        breach.record.as_ref().map(|r| (r.stream.0, r.sequence.0)),
        breach.newer_survives,
        breach.after_recovery,
        breach.contractual,
    )
}

#[derive(Clone, Copy, PartialEq)]
pub enum Held {
    Planted(Plant),
    Gone,
    Unreadable,
}

impl Case {
    pub fn held(&self, look: &LookCase, stream: u32, n: u32) -> Held {
        let place = if self.raw {
            stream * self.records + n
        } else {
            n
        };
        let end = (place + 1) * RECORD_BYTES;
        let cut_off = |part: u32| end > self.object_bytes() / 64 * part;
        match look.faults[if self.raw { 0 } else { stream as usize }] {
            Fault::Missing => Held::Gone,
            Fault::EndsAt(part) if cut_off(part) => Held::Gone,
            Fault::FailsAt(part) if cut_off(part) => Held::Unreadable,
            _ => Held::Planted(look.plants[self.index(stream, n)]),
        }
    }

    pub fn is_whole(&self, look: &LookCase, stream: u32, n: u32) -> bool {
        self.held(look, stream, n) == Held::Planted(Plant::Whole)
    }

    pub fn issued(&self, id: OperationId) -> Option<(u64, u64)> {
        self.lines.iter().find_map(|line| match line {
            LedgerLine::Issued {
                operation,
                at,
                time_ns,
            } if *operation == id => Some((at.0, *time_ns)),
            _ => None,
        })
    }

    /// Acknowledged by the cut.
    pub fn acknowledged(&self, stream: u32, n: u32) -> Option<(u64, u64)> {
        self.lines.iter().find_map(|line| match line {
            LedgerLine::Acknowledged {
                operation,
                at,
                time_ns,
                ..
            } if *operation == op(stream, u64::from(n)) && at.0 <= self.cut => {
                Some((at.0, *time_ns))
            }
            _ => None,
        })
    }

    pub fn is_forbidden(&self, stream: u32, n: u32) -> bool {
        self.issued(op(stream, u64::from(n)))
            .is_none_or(|(at, _)| at > self.cut)
    }

    pub fn is_complete(&self) -> bool {
        self.lines
            .iter()
            .any(|line| matches!(line, LedgerLine::Complete { at } if at.0 >= self.cut))
    }

    pub fn raw_kind(&self, look: &LookCase, stream: u32, n: u32) -> Option<FindingKind> {
        let required = self.acknowledged(stream, n).is_some();
        match self.held(look, stream, n) {
            Held::Planted(Plant::Newer) => Some(FindingKind::Unexpected),
            Held::Planted(Plant::Whole) if self.is_forbidden(stream, n) && self.is_complete() => {
                Some(FindingKind::Unexpected)
            }
            Held::Planted(Plant::Whole) => None,
            _ if !required => None,
            Held::Gone | Held::Planted(Plant::Zeros) => Some(FindingKind::Lost),
            Held::Unreadable => Some(FindingKind::Unreadable),
            Held::Planted(Plant::Torn) => Some(FindingKind::Torn),
            Held::Planted(Plant::Shorn) => Some(FindingKind::Shorn),
            Held::Planted(Plant::Corrupt) => Some(FindingKind::Corrupt),
            Held::Planted(Plant::Foreign) => Some(FindingKind::Foreign),
            Held::Planted(Plant::Elsewhere) => Some(FindingKind::Misdirected),
        }
    }

    /// What recovery made of a record that is no breach by its raw bytes.
    pub fn recovery_kind(&self, stream: u32, n: u32) -> Option<FindingKind> {
        if self.raw_kind(&self.first, stream, n).is_some() {
            return None;
        }
        let given_back = self.given_back[self.index(stream, n)];
        let whole = self.is_whole(&self.first, stream, n);
        let required = self.acknowledged(stream, n).is_some();
        match (whole, given_back) {
            (true, false) if required => Some(FindingKind::Lost),
            (false, true) => Some(FindingKind::Corrupt),
            _ => None,
        }
    }

    /// The breaches that one bad record amounts to. `survives` says which records are there.
    pub fn add(
        &self,
        into: &mut Vec<Found>,
        kind: FindingKind,
        (stream, n): (u32, u32),
        after: bool,
        survives: impl Fn(u32, u32) -> bool,
    ) {
        let record = Some((stream, u64::from(n)));
        let newer = self
            .each()
            .any(|(s, m)| s == stream && m > n && survives(s, m));
        let acknowledged = self.acknowledged(stream, n);
        let disordered = self.contract.order == Order::Prefix
            && acknowledged.is_some_and(|acknowledged| {
                self.each().any(|(s, m)| {
                    let issued = self.issued(op(s, u64::from(m)));
                    survives(s, m)
                        && ((s == stream && m > n)
                            || issued.is_some_and(|issued| issued > acknowledged))
                })
            });
        let young = acknowledged.is_some_and(|(_, time_ns)| {
            let age_ns = i128::from(self.cut_ns) - i128::from(time_ns);
            age_ns.max(0) < i128::from(self.contract.loss_window_ms) * 1_000_000
        });
        let contractual = young && !disordered && !after && kind != FindingKind::Unexpected;
        into.push((
            kind,
            record,
            newer && kind == FindingKind::Lost,
            after,
            contractual,
        ));
        if disordered {
            into.push((FindingKind::Unserializable, record, false, after, false));
        }
    }

    pub fn naive(&self) -> Vec<Found> {
        let mut all = Vec::new();
        let missing = |look: &LookCase, stream: u32| {
            matches!(
                look.faults[if self.raw { 0 } else { stream as usize }],
                Fault::Missing
            )
        };
        let file = |after| (FindingKind::Lost, None, false, after, false);
        for (stream, n) in self.each() {
            if let Some(kind) = self.raw_kind(&self.first, stream, n) {
                self.add(&mut all, kind, (stream, n), false, |s, m| {
                    self.is_whole(&self.first, s, m)
                });
            }
            if let Some(kind) = self.recovery_kind(stream, n) {
                self.add(&mut all, kind, (stream, n), false, |s, m| {
                    self.is_whole(&self.first, s, m) && self.given_back[self.index(s, m)]
                });
            }
        }
        for stream in 0..self.writers {
            let any = (0..self.records).any(|n| self.raw_kind(&self.first, stream, n).is_some());
            if missing(&self.first, stream) && !any {
                all.push(file(false));
            }
        }
        let Some(second) = &self.second else {
            return all;
        };
        let fresh = |stream, n| {
            self.raw_kind(second, stream, n).filter(|_| {
                self.raw_kind(&self.first, stream, n).is_none()
                    && self.recovery_kind(stream, n).is_none()
            })
        };
        for (stream, n) in self.each() {
            if let Some(kind) = fresh(stream, n) {
                self.add(&mut all, kind, (stream, n), true, |s, m| {
                    self.is_whole(second, s, m)
                });
            }
        }
        for stream in 0..self.writers {
            let any = (0..self.records).any(|n| fresh(stream, n).is_some());
            if missing(second, stream) && !missing(&self.first, stream) && !any {
                all.push(file(true));
            }
        }
        all
    }
}
