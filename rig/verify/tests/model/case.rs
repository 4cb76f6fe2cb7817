//! Random small workloads, ledgers, images and contracts.

use plugpull_model::ledger::LedgerLine;
use plugpull_model::observation::{ObservedContent, ObservedObject, UseAfterRecovery};
use plugpull_model::scenario::{ContractSpec, Order};
use plugpull_model::stack::Filesystem;
use plugpull_model::units::Position;
use plugpull_record::{RecordKey, RunId};
use proptest::prelude::*;

use crate::common::{Image, RECORD_BYTES, bytes_of, key, op, record, window};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plant {
    Whole,
    Zeros,
    Torn,
    Shorn,
    Corrupt,
    Foreign,
    Elsewhere,
    Newer,
}

/// What befell the file; the number is a part of its length in 1/64.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    None,
    Missing,
    EndsAt(u32),
    FailsAt(u32),
}

#[derive(Clone, Debug)]
pub struct LookCase {
    pub plants: Vec<Plant>,
    pub faults: Vec<Fault>,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub raw: bool,
    pub writers: u32,
    pub records: u32,
    pub lines: Vec<LedgerLine>,
    pub first: LookCase,
    pub given_back: Vec<bool>,
    pub second: Option<LookCase>,
    pub contract: ContractSpec,
    pub cut: u64,
    pub cut_ns: u64,
}

pub fn plant() -> impl Strategy<Value = Plant> {
    prop_oneof![
        10 => Just(Plant::Whole),
        3 => Just(Plant::Zeros),
        1 => Just(Plant::Torn),
        1 => Just(Plant::Shorn),
        1 => Just(Plant::Corrupt),
        1 => Just(Plant::Foreign),
        1 => Just(Plant::Elsewhere),
        1 => Just(Plant::Newer),
    ]
}

pub fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        1 => Just(Fault::Missing),
        2 => (0..64u32).prop_map(Fault::EndsAt),
        1 => (0..64u32).prop_map(Fault::FailsAt),
    ]
}

pub fn look_case(records: u32, objects: u32) -> impl Strategy<Value = LookCase> {
    (
        prop::collection::vec(plant(), records as usize),
        prop::collection::vec(fault(), objects as usize),
    )
        .prop_map(|(plants, faults)| LookCase { plants, faults })
}

/// One step of a writer: what it does next, and how far the drive and the clock go meanwhile.
pub type Step = (u32, bool, u64, u64);

pub fn ledger_lines(writers: u32, records: u32, steps: &[Step], complete: bool) -> Vec<LedgerLine> {
    let mut lines = vec![LedgerLine::Header { schema: 1 }];
    let mut next = vec![(0u32, false); writers as usize];
    let (mut at, mut time_ns) = (0, 0);
    for (pick, fails, events, ns) in steps {
        at += events;
        time_ns += ns;
        let stream = pick % writers;
        let (sequence, in_flight) = &mut next[stream as usize];
        let operation = op(stream, u64::from(*sequence));
        let at = Position(at);
        if !*in_flight {
            if *sequence == records {
                continue;
            }
            *in_flight = true;
            lines.push(LedgerLine::Issued {
                operation,
                at,
                time_ns,
            });
            continue;
        }
        *in_flight = false;
        *sequence += 1;
        lines.push(if *fails {
            LedgerLine::Failed {
                operation,
                at,
                time_ns,
                errno: 5,
            }
        } else {
            LedgerLine::Acknowledged {
                operation,
                at,
                time_ns,
                latency_ns: 1,
            }
        });
    }
    if complete {
        lines.push(LedgerLine::Complete { at: Position(at) });
    }
    lines
}

pub fn case() -> impl Strategy<Value = Case> {
    (any::<bool>(), 1..=3u32, 1..=4u32)
        .prop_flat_map(|(raw, writers, records)| {
            let objects = if raw { 1 } else { writers };
            let all = writers * records;
            let step = (any::<u32>(), prop::bool::weighted(0.1), 0..3u64, 0..3u64);
            (
                Just((raw, writers, records)),
                prop::collection::vec(step, 0..30),
                any::<bool>(),
                look_case(all, objects),
                prop::collection::vec(prop::bool::weighted(0.8), all as usize),
                prop::option::of(look_case(all, objects)),
                // Whole milliseconds against a clock of nanoseconds: in the window means "now".
                (prop::sample::select(vec![0u32, 1]), any::<bool>()),
                (
                    0..40u64,
                    0..40u64,
                    prop::sample::select(vec![0u64, 999_990]),
                ),
            )
        })
        .prop_map(
            |(shape, steps, complete, first, given_back, second, promise, cut)| {
                let (raw, writers, records) = shape;
                Case {
                    raw,
                    writers,
                    records,
                    lines: ledger_lines(writers, records, &steps, complete),
                    first,
                    given_back,
                    second,
                    contract: window(
                        promise.0,
                        if promise.1 {
                            Order::Prefix
                        } else {
                            Order::None
                        },
                    ),
                    cut: cut.0,
                    cut_ns: cut.1 + cut.2,
                }
            },
        )
}

impl Case {
    pub fn index(&self, stream: u32, sequence: u32) -> usize {
        (stream * self.records + sequence) as usize
    }

    pub fn each(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let records = self.records;
        (0..self.writers).flat_map(move |stream| (0..records).map(move |n| (stream, n)))
    }

    pub fn object_bytes(&self) -> u32 {
        RECORD_BYTES * self.records * if self.raw { self.writers } else { 1 }
    }

    pub fn image(&self) -> Image {
        let filesystem = if self.raw {
            Filesystem::None
        } else {
            Filesystem::Ext4
        };
        let mut image = Image::whole(filesystem, self.writers, self.records);
        let whole = image.observation.objects.clone();
        image.observation.objects = self.objects(&image, &self.first, &whole);
        image.observation.recovered.records = self
            .each()
            .filter(|(stream, n)| self.given_back[self.index(*stream, *n)])
            .map(|(stream, n)| op(stream, u64::from(n)))
            .collect();
        image.observation.used = self.second.as_ref().map(|second| UseAfterRecovery {
            objects: self.objects(&image, second, &whole),
            checker: None,
            failed: None,
        });
        image
    }

    pub fn objects(
        &self,
        image: &Image,
        look: &LookCase,
        whole: &[ObservedObject],
    ) -> Vec<ObservedObject> {
        let mut objects = whole.to_vec();
        for (stream, n) in self.each() {
            let key = key(&image.cell, stream, n);
            let object = if self.raw { 0 } else { stream as usize };
            let at = key.address as usize;
            let place = &mut bytes_of(&mut objects[object])[at..at + RECORD_BYTES as usize];
            match look.plants[self.index(stream, n)] {
                Plant::Whole => {}
                Plant::Zeros => place.fill(0),
                Plant::Torn => place[..4096].fill(0x77),
                Plant::Shorn => place[..512].fill(0),
                Plant::Corrupt => place[700] ^= 1,
                Plant::Foreign => place.copy_from_slice(&record(&RecordKey {
                    run: RunId([2; 16]),
                    ..key
                })),
                Plant::Elsewhere => place.copy_from_slice(&record(&RecordKey {
                    address: 1 << 30,
                    ..key
                })),
                Plant::Newer => place.copy_from_slice(&record(&RecordKey { version: 9, ..key })),
            }
        }
        for (object, fault) in objects.iter_mut().zip(&look.faults) {
            let mut bytes = bytes_of(object).clone();
            let end = |part: u32| (self.object_bytes() / 64 * part) as usize;
            object.content = match *fault {
                Fault::None => continue,
                Fault::Missing => ObservedContent::Missing,
                Fault::EndsAt(part) => {
                    bytes.truncate(end(part));
                    ObservedContent::Bytes(bytes)
                }
                Fault::FailsAt(part) => {
                    bytes.truncate(end(part));
                    ObservedContent::Unreadable {
                        before: bytes,
                        errno: 5,
                    }
                }
            };
        }
        objects
    }
}
