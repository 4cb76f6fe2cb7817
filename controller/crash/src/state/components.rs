//! Components of a cut: fragments that share units, directly or through
//! others, and the distinct outcomes that they have together.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use num_bigint::BigUint;

use super::enumerate::{Branch, Fragment};
use super::explorer::{CommandIndex, Explorer};
use super::{Source, Unit};

/// A component of up to this many fragments is listed by trying every subset;
/// a larger one (which takes long chains of overlapping, multi-block atomic
/// writes) makes its cut sampled.
const MAX_COMPONENT_FRAGMENTS: usize = 12;
/// Distinct outcomes kept of one component before its cut is sampled.
const MAX_COMPONENT_OUTCOMES: usize = 1 << 13;
/// Settled choices remembered of one component while its cut is sampled.
const MAX_REMEMBERED: usize = 1 << 10;

/// What a choice of survivors leaves in some units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// What it adds to the id of the durable image.
    pub(super) change: u128,
    /// The units that differ from the durable image, ascending. Shared: a
    /// state is put together of many of these.
    pub(super) overrides: Rc<[(Unit, Source)]>,
}

/// A component of a branch.
#[derive(Debug)]
pub(super) struct Component {
    /// Its free fragments: places in [`Branch::free`], ascending.
    pub(super) places: Vec<usize>,
    /// The same as numbers of fragments.
    pub(super) fragments: Vec<usize>,
    pub(super) units: Vec<Unit>,
    // By unit, what is sure to survive there.
    pub(super) sure: Vec<Vec<CommandIndex>>,
    /// Its distinct outcomes, if `complete`.
    pub(super) outcomes: Vec<Settled>,
    /// Whether `outcomes` is all of them.
    pub(super) complete: bool,
    /// Their number, or an upper bound of it.
    pub(super) bound: BigUint,
    remembered: HashMap<(u64, bool), Settled>,
}

/// The possible contents of a unit when these commands survive on it (durable
/// ones included): each that no other survivor supersedes.
pub(super) fn winners(explorer: &Explorer<'_>, survivors: &[CommandIndex]) -> Vec<CommandIndex> {
    let newest = survivors
        .iter()
        .map(|one| explorer.command(*one).submitted)
        .max();
    survivors
        .iter()
        .copied()
        .filter(|one| newest.is_none_or(|newest| explorer.command(*one).completed >= newest))
        .collect()
}

/// By unit, the commands that are sure to survive beyond the durable ones.
fn fixed_by_unit(fragments: &[Fragment], branch: &Branch) -> BTreeMap<Unit, Vec<CommandIndex>> {
    let mut out: BTreeMap<Unit, Vec<CommandIndex>> = BTreeMap::new();
    for index in &branch.fixed {
        for unit in fragments[*index].units.clone() {
            out.entry(unit).or_default().push(fragments[*index].command);
        }
    }
    out
}

fn sure(
    explorer: &Explorer<'_>,
    fixed: &BTreeMap<Unit, Vec<CommandIndex>>,
    unit: Unit,
) -> Vec<CommandIndex> {
    let mut out: Vec<CommandIndex> = match explorer.durable.get(&unit) {
        Some(holders) => holders.as_slice().iter().map(|one| *one as usize).collect(),
        None => Vec::new(),
    };
    if let Some(more) = fixed.get(&unit) {
        out.extend(more);
    }
    out
}

/// The constant part of a branch (units that only fixed fragments touch, and
/// that they settle) and its components.
pub(super) fn components(
    explorer: &mut Explorer<'_>,
    fragments: &[Fragment],
    branch: &Branch,
) -> (Settled, Vec<Component>) {
    let fixed = fixed_by_unit(fragments, branch);
    // A union-find over places in `branch.free` through the units they share.
    let mut parent: Vec<usize> = (0..branch.free.len()).collect();
    fn root(parent: &mut [usize], mut at: usize) -> usize {
        while parent[at] != at {
            parent[at] = parent[parent[at]];
            at = parent[at];
        }
        at
    }
    let mut first_of_unit: HashMap<Unit, usize> = HashMap::new();
    for (place, index) in branch.free.iter().enumerate() {
        for unit in fragments[*index].units.clone() {
            match first_of_unit.get(&unit) {
                Some(other) => {
                    let (a, b) = (root(&mut parent, *other), root(&mut parent, place));
                    parent[b.max(a)] = a.min(b);
                }
                None => {
                    first_of_unit.insert(unit, place);
                }
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for place in 0..branch.free.len() {
        groups
            .entry(root(&mut parent, place))
            .or_default()
            .push(place);
    }
    let mut out: Vec<Component> = groups
        .into_values()
        .map(|places| component(explorer, fragments, branch, places, &fixed))
        .collect();
    // Units where what is sure already leaves a choice and no fragment is free.
    let mut open: BTreeSet<Unit> = explorer.ambiguous.iter().copied().collect();
    open.extend(fixed.keys().copied());
    let mut constant = Vec::new();
    for unit in open {
        if first_of_unit.contains_key(&unit) {
            continue;
        }
        let survivors = sure(explorer, &fixed, unit);
        let alternatives = vec![unit_outcomes(explorer, unit, &survivors)];
        if fixed.contains_key(&unit) && alternatives[0].len() == 1 {
            constant.push(alternatives[0][0]);
            continue;
        }
        let outcomes = distinct(explorer, alternatives);
        if outcomes.len() == 1 && fixed.contains_key(&unit) {
            constant.extend_from_slice(&outcomes[0].overrides);
        }
        if outcomes.len() > 1 {
            out.push(Component {
                places: Vec::new(),
                fragments: Vec::new(),
                units: vec![unit],
                sure: vec![survivors],
                bound: BigUint::from(outcomes.len()),
                outcomes,
                complete: true,
                remembered: HashMap::new(),
            });
        }
    }
    (settled(explorer, &constant), out)
}

fn component(
    explorer: &mut Explorer<'_>,
    all: &[Fragment],
    branch: &Branch,
    places: Vec<usize>,
    fixed: &BTreeMap<Unit, Vec<CommandIndex>>,
) -> Component {
    let group: Vec<usize> = places.iter().map(|place| branch.free[*place]).collect();
    let units: BTreeSet<Unit> = group
        .iter()
        .flat_map(|index| all[*index].units.clone())
        .collect();
    let units: Vec<Unit> = units.into_iter().collect();
    let sure: Vec<Vec<CommandIndex>> = units
        .iter()
        .map(|unit| sure(explorer, fixed, *unit))
        .collect();
    let mut out = Component {
        places,
        fragments: group,
        units,
        sure,
        outcomes: Vec::new(),
        complete: true,
        bound: BigUint::ZERO,
        remembered: HashMap::new(),
    };
    if out.units.len() == 1 {
        out.outcomes = of_one_unit(explorer, all, &out);
        out.bound = BigUint::from(out.outcomes.len());
        return out;
    }
    if let Some(outcomes) = of_several_units(explorer, all, &out) {
        out.bound = BigUint::from(outcomes.len());
        out.outcomes = outcomes;
        return out;
    }
    // A unit holds what one of its fragments left, or what is sure to be there:
    // no more choices than these, whatever the order.
    out.complete = false;
    out.bound =
        out.units
            .iter()
            .zip(&out.sure)
            .fold(BigUint::from(1u32), |product, (unit, sure)| {
                let touching = out
                    .fragments
                    .iter()
                    .filter(|index| all[**index].units.contains(unit))
                    .count();
                product * (touching + sure.len().max(1))
            });
    out
}

/// Every fragment that nothing sure supersedes can be the newest survivor.
fn of_one_unit(explorer: &mut Explorer<'_>, all: &[Fragment], part: &Component) -> Vec<Settled> {
    let (unit, sure) = (part.units[0], &part.sure[0]);
    let mut choices = unit_outcomes(explorer, unit, sure);
    let newest_submission = sure
        .iter()
        .map(|one| explorer.command(*one).submitted)
        .max();
    for index in &part.fragments {
        let command = all[*index].command;
        let completed = explorer.command(command).completed;
        if newest_submission.is_none_or(|submitted| completed >= submitted) {
            choices.push((unit, explorer.source(command, unit)));
        }
    }
    distinct(explorer, vec![choices])
}

/// Every subset, and for each unit every survivor that none supersedes; `None`
/// when these are too many.
fn of_several_units(
    explorer: &mut Explorer<'_>,
    all: &[Fragment],
    part: &Component,
) -> Option<Vec<Settled>> {
    if part.fragments.len() > MAX_COMPONENT_FRAGMENTS {
        return None;
    }
    let mut seen = HashSet::new();
    let mut outcomes = Vec::new();
    for subset in 0u64..1 << part.fragments.len() {
        let alternatives: Vec<Vec<(Unit, Source)>> = part
            .units
            .iter()
            .zip(&part.sure)
            .map(|(unit, sure)| {
                let mut survivors = sure.clone();
                for (bit, index) in part.fragments.iter().enumerate() {
                    if subset >> bit & 1 == 1 && all[*index].units.contains(unit) {
                        survivors.push(all[*index].command);
                    }
                }
                unit_outcomes(explorer, *unit, &survivors)
            })
            .collect();
        let product: usize = alternatives
            .iter()
            .fold(1, |product, choices| product.saturating_mul(choices.len()));
        if product > MAX_COMPONENT_OUTCOMES || outcomes.len() > MAX_COMPONENT_OUTCOMES {
            return None;
        }
        for outcome in distinct(explorer, alternatives) {
            if seen.insert(outcome.change) {
                outcomes.push(outcome);
            }
        }
    }
    Some(outcomes)
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
fn distinct(explorer: &mut Explorer<'_>, alternatives: Vec<Vec<(Unit, Source)>>) -> Vec<Settled> {
    let mut outcomes: Vec<Vec<(Unit, Source)>> = vec![Vec::new()];
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
    outcomes
        .into_iter()
        .map(|outcome| settled(explorer, &outcome))
        .filter(|outcome| seen.insert(outcome.change))
        .collect()
}

/// What this assignment of contents changes in the durable image. `choices` is
/// ascending by unit.
pub(super) fn settled(explorer: &mut Explorer<'_>, choices: &[(Unit, Source)]) -> Settled {
    let mut out = Settled::default();
    let mut overrides = Vec::with_capacity(choices.len());
    for (unit, source) in choices {
        let durable = explorer.durable_source(*unit);
        if durable == *source {
            continue;
        }
        let change = explorer
            .contents
            .term(*unit, *source)
            .wrapping_sub(explorer.contents.term(*unit, durable));
        if change != 0 {
            out.change = out.change.wrapping_add(change);
            overrides.push((*unit, *source));
        }
    }
    out.overrides = overrides.into();
    out
}

/// The outcome of one choice of survivors; `kept` is by place in
/// [`Branch::free`]. Where the order is open, the command that completed last
/// wins, or the first one.
pub(super) fn settle(
    explorer: &mut Explorer<'_>,
    all: &[Fragment],
    part: &mut Component,
    kept: &[bool],
    last_wins: bool,
) -> Settled {
    let mask = (part.places.len() <= 64).then(|| {
        part.places
            .iter()
            .enumerate()
            .fold(0u64, |mask, (bit, place)| {
                mask | u64::from(kept[*place]) << bit
            })
    });
    if let Some(known) = mask.and_then(|mask| part.remembered.get(&(mask, last_wins))) {
        return known.clone();
    }
    let mut choices = Vec::with_capacity(part.units.len());
    for (unit, sure) in part.units.iter().zip(&part.sure) {
        let mut survivors = sure.clone();
        for (place, index) in part.places.iter().zip(&part.fragments) {
            if kept[*place] && all[*index].units.contains(unit) {
                survivors.push(all[*index].command);
            }
        }
        let open = winners(explorer, &survivors);
        let winner = if last_wins {
            open.iter().max()
        } else {
            open.iter().min()
        };
        let source = match winner {
            Some(winner) => explorer.source(*winner, *unit),
            None => Source::Base,
        };
        choices.push((*unit, source));
    }
    let out = settled(explorer, &choices);
    if let Some(mask) = mask {
        if part.remembered.len() >= MAX_REMEMBERED {
            part.remembered.clear();
        }
        part.remembered.insert((mask, last_wins), out.clone());
    }
    out
}
