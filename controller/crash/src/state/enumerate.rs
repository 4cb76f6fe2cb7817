//! From candidates to crash states.
//!
//! Fragments that share no unit are independent, so the fragments are split
//! into connected components, the distinct outcomes of each are listed, and
//! the crash states of the cut are the product. That gives each distinct image
//! once: a chain of n rewrites of one block has n + 1 outcomes, not 2^n.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use num_bigint::BigUint;
use plugpull_model::drive::{InFlight, Survivors};
use plugpull_model::seed::Seed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::explorer::{CommandIndex, Explorer};
use super::planted::damage;
use super::{CrashState, ImageId, Source, Unit};

/// A component of up to this many fragments is listed by trying every subset;
/// a larger one (which takes long chains of overlapping, multi-block atomic
/// writes) makes its cut sampled.
const MAX_COMPONENT_FRAGMENTS: usize = 12;
/// Distinct outcomes kept of one component before its cut is sampled.
const MAX_COMPONENT_OUTCOMES: usize = 1 << 13;

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
struct Fragment {
    command: CommandIndex,
    units: std::ops::Range<Unit>,
}

/// One way to restrict the choice: these survive, those are free.
struct Branch {
    fixed: Vec<usize>,
    free: Vec<usize>,
}

type Outcome = Vec<(Unit, Source)>;

struct Component {
    outcomes: Vec<Outcome>,
    complete: bool,
    bound: BigUint,
}

/// Lists the crash states of a cut at the explorer's position.
pub fn crash_states(explorer: &mut Explorer<'_>, limits: Limits, seed: Seed) -> CutStates {
    let (fragments, completed) = fragments(explorer);
    let branches = branches(explorer, fragments.len(), completed);
    let mut collector = Collector {
        seen: HashSet::new(),
        states: Vec::new(),
    };
    let mut possible = BigUint::ZERO;
    let mut exact = branches.len() == 1;
    let mut prepared = Vec::with_capacity(branches.len());
    for branch in &branches {
        let components = components(explorer, &fragments, branch);
        let mut count = BigUint::from(1u32);
        for component in &components {
            count *= &component.bound;
            exact &= component.complete;
        }
        possible += count;
        prepared.push(components);
    }
    let complete = prepared
        .iter()
        .flatten()
        .all(|component| component.complete);
    let exhaustive = complete && possible <= BigUint::from(limits.exhaustive);
    if exhaustive {
        for (branch, components) in branches.iter().zip(&prepared) {
            let constant = constant_part(explorer, &fragments, branch);
            product(explorer, &constant, components, &mut collector);
        }
        if branches.len() > 1 {
            // Branches overlap; having listed them all, the count is known.
            possible = BigUint::from(collector.states.len());
            exact = true;
        }
    } else {
        sample(
            explorer,
            &fragments,
            &branches,
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
        fragments: fragments.len(),
    }
}

fn fragments(explorer: &Explorer<'_>) -> (Vec<Fragment>, usize) {
    let mut out = Vec::new();
    let mut completed = 0;
    for candidate in explorer.candidates() {
        let units = explorer.units(candidate.index);
        if explorer.is_atomic(candidate.index) {
            out.push(Fragment {
                command: candidate.index,
                units,
            });
        } else {
            out.extend(units.map(|unit| Fragment {
                command: candidate.index,
                units: unit..unit + 1,
            }));
        }
        if !candidate.in_flight {
            completed = out.len();
        }
    }
    (out, completed)
}

fn branches(explorer: &Explorer<'_>, fragments: usize, completed: usize) -> Vec<Branch> {
    let range = |from: usize, to: usize| (from..to).collect::<Vec<usize>>();
    let flying = |fixed: usize, free: Vec<usize>| -> Vec<Branch> {
        match explorer.settings.in_flight {
            InFlight::Any => {
                let mut all = free;
                all.extend(completed..fragments);
                vec![Branch {
                    fixed: range(0, fixed),
                    free: all,
                }]
            }
            InFlight::None => vec![Branch {
                fixed: range(0, fixed),
                free,
            }],
            InFlight::Prefix => (completed..=fragments)
                .map(|to| {
                    let mut kept = range(0, fixed);
                    kept.extend(completed..to);
                    Branch {
                        fixed: kept,
                        free: free.clone(),
                    }
                })
                .collect(),
        }
    };
    match explorer.settings.survivors {
        Survivors::Any => flying(0, range(0, completed)),
        Survivors::Prefix => {
            let mut out: Vec<Branch> = (0..completed)
                .map(|to| Branch {
                    fixed: range(0, to),
                    free: Vec::new(),
                })
                .collect();
            out.extend(flying(completed, Vec::new()));
            out
        }
    }
}

/// The possible contents of a unit when these commands survive on it (durable
/// ones included): each that no other survivor supersedes.
fn winners(explorer: &Explorer<'_>, survivors: &[CommandIndex]) -> Vec<CommandIndex> {
    survivors
        .iter()
        .copied()
        .filter(|one| {
            let completed = explorer.command(*one).completed;
            !survivors
                .iter()
                .any(|other| completed < explorer.command(*other).submitted)
        })
        .collect()
}

/// By unit, the commands that are sure to survive beyond the durable ones.
fn fixed_by_unit(fragments: &[Fragment], branch: &Branch) -> HashMap<Unit, Vec<CommandIndex>> {
    let mut out: HashMap<Unit, Vec<CommandIndex>> = HashMap::new();
    for index in &branch.fixed {
        for unit in fragments[*index].units.clone() {
            out.entry(unit).or_default().push(fragments[*index].command);
        }
    }
    out
}

fn sure(
    explorer: &Explorer<'_>,
    fixed: &HashMap<Unit, Vec<CommandIndex>>,
    unit: Unit,
) -> Vec<CommandIndex> {
    let mut out = explorer.durable.get(&unit).cloned().unwrap_or_default();
    if let Some(more) = fixed.get(&unit) {
        out.extend(more);
    }
    out
}

fn components(
    explorer: &mut Explorer<'_>,
    fragments: &[Fragment],
    branch: &Branch,
) -> Vec<Component> {
    let fixed = fixed_by_unit(fragments, branch);
    // A union-find over free fragments through the units they share.
    let mut parent: Vec<usize> = (0..fragments.len()).collect();
    fn root(parent: &mut [usize], mut at: usize) -> usize {
        while parent[at] != at {
            parent[at] = parent[parent[at]];
            at = parent[at];
        }
        at
    }
    let mut first_of_unit: HashMap<Unit, usize> = HashMap::new();
    for index in &branch.free {
        for unit in fragments[*index].units.clone() {
            match first_of_unit.get(&unit) {
                Some(other) => {
                    let (a, b) = (root(&mut parent, *other), root(&mut parent, *index));
                    parent[b.max(a)] = a.min(b);
                }
                None => {
                    first_of_unit.insert(unit, *index);
                }
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in &branch.free {
        groups
            .entry(root(&mut parent, *index))
            .or_default()
            .push(*index);
    }
    let mut out: Vec<Component> = groups
        .values()
        .map(|group| component(explorer, fragments, group, &fixed))
        .collect();
    // Units where what is sure already leaves a choice and no fragment is free.
    let mut open: BTreeSet<Unit> = explorer.ambiguous.iter().copied().collect();
    open.extend(fixed.keys().copied());
    for unit in open {
        if first_of_unit.contains_key(&unit) {
            continue;
        }
        let outcomes = distinct(
            explorer,
            vec![unit_outcomes(explorer, unit, &sure(explorer, &fixed, unit))],
        );
        if outcomes.len() > 1 {
            let bound = BigUint::from(outcomes.len());
            out.push(Component {
                outcomes,
                complete: true,
                bound,
            });
        }
    }
    out
}

fn unit_outcomes(
    explorer: &Explorer<'_>,
    unit: Unit,
    survivors: &[CommandIndex],
) -> Vec<(Unit, Source)> {
    if survivors.is_empty() {
        return vec![(unit, Source::Base)];
    }
    winners(explorer, survivors)
        .into_iter()
        .map(|winner| (unit, explorer.source(winner, unit)))
        .collect()
}

/// The product of per-unit alternatives, without doubles by content.
fn distinct(explorer: &mut Explorer<'_>, alternatives: Vec<Vec<(Unit, Source)>>) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = vec![Vec::new()];
    for unit in &alternatives {
        let mut next = Vec::with_capacity(outcomes.len() * unit.len());
        for outcome in &outcomes {
            for choice in unit {
                let mut longer = outcome.clone();
                longer.push(*choice);
                next.push(longer);
            }
        }
        outcomes = next;
    }
    let mut seen = HashSet::new();
    outcomes.retain(|outcome| seen.insert(identity(explorer, outcome)));
    outcomes
}

fn identity(explorer: &mut Explorer<'_>, outcome: &Outcome) -> u128 {
    outcome.iter().fold(0u128, |sum, (unit, source)| {
        sum.wrapping_add(explorer.contents.term(*unit, *source))
    })
}

fn component(
    explorer: &mut Explorer<'_>,
    fragments: &[Fragment],
    group: &[usize],
    fixed: &HashMap<Unit, Vec<CommandIndex>>,
) -> Component {
    let units: BTreeSet<Unit> = group
        .iter()
        .flat_map(|index| fragments[*index].units.clone())
        .collect();
    let mut seen = HashSet::new();
    let mut outcomes: Vec<Outcome> = Vec::new();
    if units.len() == 1 {
        // Every fragment that nothing sure supersedes can be the newest survivor.
        for unit in &units {
            let sure = sure(explorer, fixed, *unit);
            let mut choices = unit_outcomes(explorer, *unit, &sure);
            for index in group {
                let command = fragments[*index].command;
                let mut survivors = sure.clone();
                survivors.push(command);
                if winners(explorer, &survivors).contains(&command) {
                    choices.push((*unit, explorer.source(command, *unit)));
                }
            }
            for choice in choices {
                if seen.insert(explorer.contents.term(choice.0, choice.1)) {
                    outcomes.push(vec![choice]);
                }
            }
        }
        let bound = BigUint::from(outcomes.len());
        return Component {
            outcomes,
            complete: true,
            bound,
        };
    }
    // A unit holds what one of its fragments left, or what is sure to be there:
    // no more choices than these, whatever the order.
    let bound = units.iter().fold(BigUint::from(1u32), |product, unit| {
        let touching = group
            .iter()
            .filter(|index| fragments[**index].units.contains(unit))
            .count();
        product * (touching + sure(explorer, fixed, *unit).len().max(1))
    });
    if group.len() > MAX_COMPONENT_FRAGMENTS {
        return Component {
            outcomes,
            complete: false,
            bound,
        };
    }
    for subset in 0u32..1 << group.len() {
        let alternatives: Vec<Vec<(Unit, Source)>> = units
            .iter()
            .map(|unit| {
                let mut survivors = sure(explorer, fixed, *unit);
                for (bit, index) in group.iter().enumerate() {
                    if subset >> bit & 1 == 1 && fragments[*index].units.contains(unit) {
                        survivors.push(fragments[*index].command);
                    }
                }
                unit_outcomes(explorer, *unit, &survivors)
            })
            .collect();
        let product: usize = alternatives
            .iter()
            .fold(1, |product, choices| product.saturating_mul(choices.len()));
        if product > MAX_COMPONENT_OUTCOMES || outcomes.len() > MAX_COMPONENT_OUTCOMES {
            return Component {
                outcomes: Vec::new(),
                complete: false,
                bound,
            };
        }
        for outcome in distinct(explorer, alternatives) {
            if seen.insert(identity(explorer, &outcome)) {
                outcomes.push(outcome);
            }
        }
    }
    let bound = BigUint::from(outcomes.len());
    Component {
        outcomes,
        complete: true,
        bound,
    }
}

/// Units that only fixed fragments touch, and that they settle.
fn constant_part(explorer: &Explorer<'_>, fragments: &[Fragment], branch: &Branch) -> Outcome {
    let fixed = fixed_by_unit(fragments, branch);
    let mut out: Outcome = fixed
        .keys()
        .filter_map(|unit| {
            unit_outcomes(explorer, *unit, &sure(explorer, &fixed, *unit))
                .first()
                .copied()
        })
        .collect();
    out.sort_unstable();
    out
}

struct Collector {
    seen: HashSet<ImageId>,
    states: Vec<CrashState>,
}

impl Collector {
    /// Adds the state that `choices` gives; later choices of a unit win.
    fn add<'o>(
        &mut self,
        explorer: &mut Explorer<'_>,
        choices: impl Iterator<Item = &'o (Unit, Source)>,
    ) {
        let mut by_unit: BTreeMap<Unit, Source> = BTreeMap::new();
        for (unit, source) in choices {
            by_unit.insert(*unit, *source);
        }
        let mut image = explorer.durable_image().0;
        let mut overrides = Vec::with_capacity(by_unit.len());
        for (unit, source) in by_unit {
            let durable = match explorer
                .durable
                .get(&unit)
                .and_then(|holders| holders.first())
            {
                Some(holder) => explorer.source(*holder, unit),
                None => Source::Base,
            };
            if durable == source {
                continue;
            }
            let change = explorer
                .contents
                .term(unit, source)
                .wrapping_sub(explorer.contents.term(unit, durable));
            if change != 0 {
                image = image.wrapping_add(change);
                overrides.push((unit, source));
            }
        }
        let image = ImageId(image);
        if self.seen.insert(image) {
            self.states.push(CrashState {
                image,
                overrides,
                planted: None,
            });
        }
    }
}

fn product(
    explorer: &mut Explorer<'_>,
    constant: &Outcome,
    components: &[Component],
    out: &mut Collector,
) {
    let mut choice = vec![0usize; components.len()];
    loop {
        let chosen: Vec<&Outcome> = components
            .iter()
            .zip(&choice)
            .map(|(component, at)| &component.outcomes[*at])
            .collect();
        out.add(
            explorer,
            constant.iter().chain(chosen.into_iter().flatten()),
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
    fragments: &[Fragment],
    branches: &[Branch],
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
        for branch in branches {
            if out.states.len() >= wanted {
                return;
            }
            let Some(kept) = strategy(branch, fragments, round, &mut random) else {
                continue;
            };
            any = true;
            let choices = settle(explorer, fragments, branch, &kept, round % 2 == 0);
            out.add(explorer, choices.iter());
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

/// The image of one choice of survivors. Where the order is open, the command
/// that completed last wins, or the first one; the rounds take turns.
fn settle(
    explorer: &Explorer<'_>,
    fragments: &[Fragment],
    branch: &Branch,
    kept: &[bool],
    last_wins: bool,
) -> Outcome {
    let mut by_unit = fixed_by_unit(fragments, branch);
    for (index, kept) in branch.free.iter().zip(kept) {
        if *kept {
            for unit in fragments[*index].units.clone() {
                by_unit
                    .entry(unit)
                    .or_default()
                    .push(fragments[*index].command);
            }
        }
    }
    let mut out: Outcome = by_unit
        .into_iter()
        .filter_map(|(unit, mut survivors)| {
            if let Some(durable) = explorer.durable.get(&unit) {
                survivors.extend(durable);
            }
            let open = winners(explorer, &survivors);
            let winner = if last_wins {
                open.iter().max()
            } else {
                open.iter().min()
            };
            let winner = *winner?;
            Some((unit, explorer.source(winner, unit)))
        })
        .collect();
    out.sort_unstable();
    out
}
