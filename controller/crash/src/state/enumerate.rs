//! From candidates to crash states.
//!
//! Fragments that share no unit are independent, so the fragments are split
//! into connected components, the distinct outcomes of each are listed, and
//! the crash states of the cut are the product. That gives each distinct image
//! once: a chain of n rewrites of one block has n + 1 outcomes, not 2^n.

use std::collections::HashSet;

use num_bigint::BigUint;
use plugpull_model::drive::{InFlight, Survivors};
use plugpull_model::seed::Seed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::components::{Component, Settled, components, settle};
use super::explorer::{CommandIndex, Explorer, Standing};
use super::planted::damage;
use super::{CrashState, ImageId, Unit};

/// An exhaustive cut of more states than this begins with the named strategies
/// all the same: what is most telling is seen first.
const LISTED_PLAINLY: u32 = 64;

/// How many states of one cut are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most this many: all of them.
    pub exhaustive: u32,
    /// Otherwise at most this many, by named strategies and at random.
    pub sampled: u32,
}

/// The crash states of one cut.
#[derive(Clone, Debug)]
pub struct CutStates {
    /// Distinct crash states. An upper bound where `exact` is false.
    pub possible: BigUint,
    /// Whether `possible` is exact.
    pub exact: bool,
    /// Whether `states` is all of them.
    pub exhaustive: bool,
    /// The states to judge, without doubles.
    pub states: Vec<CrashState>,
    /// Fragments that may or may not survive here.
    pub fragments: usize,
}

/// A part of a command that survives or is lost as a whole.
#[derive(Clone, Debug)]
pub(super) struct Fragment {
    pub(super) command: CommandIndex,
    pub(super) units: std::ops::Range<Unit>,
}

/// One way to restrict the choice: these survive, those are free.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) fixed: Vec<usize>,
    pub(super) free: Vec<usize>,
    /// Whether the log leaves open if its states can occur.
    pub(super) doubtful: bool,
}

/// A branch with its components.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) branch: Branch,
    pub(super) constant: Settled,
    pub(super) components: Vec<Component>,
}

/// Lists the crash states of a cut at the explorer's position.
pub fn crash_states(explorer: &mut Explorer<'_>, limits: Limits, seed: Seed) -> CutStates {
    let fragments = fragments(explorer);
    let mut prepared = prepare(explorer, &fragments);
    let (mut possible, mut exact, mut complete) = (BigUint::ZERO, true, true);
    // With doubt, the doubtful branch holds every state of the certain one.
    let counted = if prepared.iter().any(|one| one.branch.doubtful) {
        1..prepared.len()
    } else {
        0..prepared.len()
    };
    exact &= counted.len() == 1;
    for one in &prepared[counted] {
        let count = one
            .components
            .iter()
            .fold(BigUint::from(1u32), |count, part| count * &part.bound);
        possible += count;
    }
    for part in prepared.iter().flat_map(|one| &one.components) {
        complete &= part.complete;
    }
    exact &= complete;
    let mut collector = Collector::new(explorer.durable_image());
    let exhaustive = complete && possible <= BigUint::from(limits.exhaustive);
    if exhaustive {
        if possible > BigUint::from(LISTED_PLAINLY) {
            sample(
                explorer,
                &fragments,
                &mut prepared,
                LISTED_PLAINLY as usize,
                seed,
                &mut collector,
            );
        }
        for one in &prepared {
            product(one, &mut collector);
        }
        if !exact {
            // Branches overlap; having listed them all, the count is known.
            possible = BigUint::from(collector.states.len());
            exact = true;
        }
    } else {
        sample(
            explorer,
            &fragments,
            &mut prepared,
            limits.sampled as usize,
            seed,
            &mut collector,
        );
    }
    damage(explorer, &mut collector.states);
    CutStates {
        possible,
        exact,
        exhaustive,
        states: collector.states,
        fragments: fragments.list.len(),
    }
}

/// The fragments of a cut: those in doubt, completed ones, those in flight.
#[derive(Debug)]
pub(super) struct Fragments {
    pub(super) list: Vec<Fragment>,
    in_doubt: usize,
    completed: usize,
}

pub(super) fn fragments(explorer: &Explorer<'_>) -> Fragments {
    let mut out = Fragments {
        list: Vec::new(),
        in_doubt: 0,
        completed: 0,
    };
    for candidate in explorer.candidates() {
        let units = explorer.units(candidate.index);
        if explorer.is_atomic(candidate.index) {
            out.list.push(Fragment {
                command: candidate.index,
                units,
            });
        } else {
            out.list.extend(units.map(|unit| Fragment {
                command: candidate.index,
                units: unit..unit + 1,
            }));
        }
        match candidate.standing {
            Standing::InDoubt => {
                out.in_doubt = out.list.len();
                out.completed = out.list.len();
            }
            Standing::Completed => out.completed = out.list.len(),
            Standing::InFlight => {}
        }
    }
    out
}

pub(super) fn prepare(explorer: &mut Explorer<'_>, fragments: &Fragments) -> Vec<Prepared> {
    let branches = branches(explorer, fragments);
    branches
        .into_iter()
        .map(|branch| {
            let (constant, components) = components(explorer, &fragments.list, &branch);
            Prepared {
                branch,
                constant,
                components,
            }
        })
        .collect()
}

fn branches(explorer: &Explorer<'_>, fragments: &Fragments) -> Vec<Branch> {
    let (all, completed) = (fragments.list.len(), fragments.completed);
    let range = |from: usize, to: usize| (from..to).collect::<Vec<usize>>();
    let branch = |fixed: Vec<usize>, free: Vec<usize>| Branch {
        fixed,
        free,
        doubtful: false,
    };
    let flying = |fixed: usize, free: Vec<usize>| -> Vec<Branch> {
        match explorer.settings.in_flight {
            InFlight::Any => {
                let mut free = free;
                free.extend(completed..all);
                vec![branch(range(0, fixed), free)]
            }
            InFlight::None => vec![branch(range(0, fixed), free)],
            InFlight::Prefix => (completed..=all)
                .map(|to| {
                    let mut kept = range(0, fixed);
                    kept.extend(completed..to);
                    branch(kept, free.clone())
                })
                .collect(),
        }
    };
    if fragments.in_doubt > 0 {
        // Logs with doubt have no completion order to take a prefix of.
        let sure = range(0, fragments.in_doubt);
        return vec![
            branch(sure, range(fragments.in_doubt, all)),
            Branch {
                fixed: Vec::new(),
                free: range(0, all),
                doubtful: true,
            },
        ];
    }
    match explorer.settings.survivors {
        Survivors::Any => flying(0, range(0, completed)),
        Survivors::Prefix => {
            let mut out: Vec<Branch> = (0..completed)
                .map(|to| branch(range(0, to), Vec::new()))
                .collect();
            out.extend(flying(completed, Vec::new()));
            out
        }
    }
}

struct Collector {
    durable: ImageId,
    seen: HashSet<ImageId>,
    states: Vec<CrashState>,
}

impl Collector {
    fn new(durable: ImageId) -> Collector {
        Collector {
            durable,
            seen: HashSet::new(),
            states: Vec::new(),
        }
    }

    /// Adds the state in which each part is settled so, if it is new.
    fn add<'o>(&mut self, parts: impl Iterator<Item = &'o Settled> + Clone, doubtful: bool) {
        let image = parts
            .clone()
            .fold(self.durable.0, |sum, part| sum.wrapping_add(part.change));
        if self.seen.insert(ImageId(image)) {
            self.states.push(assemble(self.durable, parts, doubtful));
        }
    }
}

/// The state of a cut whose durable image is `durable`, in which each part is
/// settled so.
pub(super) fn assemble<'o>(
    durable: ImageId,
    parts: impl Iterator<Item = &'o Settled>,
    doubtful: bool,
) -> CrashState {
    let mut image = durable.0;
    let mut overrides = Vec::new();
    for part in parts {
        image = image.wrapping_add(part.change);
        overrides.extend_from_slice(&part.overrides);
    }
    overrides.sort_unstable();
    CrashState {
        image: ImageId(image),
        overrides,
        planted: None,
        doubtful,
    }
}

fn product(one: &Prepared, out: &mut Collector) {
    let components = &one.components;
    let mut choice = vec![0usize; components.len()];
    loop {
        let chosen = components
            .iter()
            .zip(&choice)
            .map(|(component, at)| &component.outcomes[*at]);
        out.add(
            std::iter::once(&one.constant).chain(chosen),
            one.branch.doubtful,
        );
        let Some(next) =
            (0..choice.len()).find(|at| choice[*at] + 1 < components[*at].outcomes.len())
        else {
            return;
        };
        choice[next] += 1;
        choice[..next].fill(0);
    }
}

/// Named strategies, the most revealing first, then random subsets.
fn sample(
    explorer: &mut Explorer<'_>,
    fragments: &Fragments,
    prepared: &mut [Prepared],
    wanted: usize,
    seed: Seed,
    out: &mut Collector,
) {
    let seed = seed.derive("cut").0 ^ explorer.position();
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    // All lost and all kept of every branch first: with prefixes the branches
    // are the prefixes.
    for round in 0.. {
        let mut any = false;
        for one in &mut *prepared {
            if out.states.len() >= wanted {
                return;
            }
            let Some(kept) = strategy(&one.branch, &fragments.list, round, &mut random) else {
                continue;
            };
            any = true;
            let parts: Vec<Settled> = one
                .components
                .iter_mut()
                .map(|part| settle(explorer, &fragments.list, part, &kept, round % 2 == 0))
                .collect();
            out.add(
                std::iter::once(&one.constant).chain(&parts),
                one.branch.doubtful,
            );
        }
        // Random subsets that only repeat images end the search too.
        if !any || round > 64 + wanted * 8 {
            return;
        }
    }
}

/// The `round`-th choice of survivors among the free fragments of a branch.
/// Deterministic ones: all lost; all kept; then in turn, walking from the
/// newest fragment to the oldest: one lost, one kept, a prefix, a suffix
/// (newest kept, oldest lost), a tear inside one command; and a random subset.
fn strategy(
    branch: &Branch,
    fragments: &[Fragment],
    round: usize,
    random: &mut ChaCha12Rng,
) -> Option<Vec<bool>> {
    let n = branch.free.len();
    let all = |kept: bool| vec![kept; n];
    if n == 0 {
        return (round == 0).then(Vec::new);
    }
    match round {
        0 => return Some(all(false)),
        1 => return Some(all(true)),
        _ => {}
    }
    let turn = (round - 2) % 6;
    let step = (round - 2) / 6;
    if turn == 5 || step >= n {
        return Some((0..n).map(|_| random.random::<bool>()).collect());
    }
    let at = n - 1 - step;
    let mut kept = match turn {
        0 | 4 => all(true),
        1 => all(false),
        2 => (0..n).map(|index| index < at).collect(),
        _ => (0..n).map(|index| index >= at).collect(),
    };
    match turn {
        0 => kept[at] = false,
        1 => kept[at] = true,
        4 => {
            // From this fragment on, the rest of its command is lost.
            let command = fragments[branch.free[at]].command;
            for (slot, index) in kept.iter_mut().zip(&branch.free).skip(at) {
                *slot = fragments[*index].command != command;
            }
        }
        _ => {}
    }
    Some(kept)
}
