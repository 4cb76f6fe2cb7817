//! `plugpull selftest`: breaks the product on purpose and shows that each break
//! is caught.
//!
//! A scenario with controls runs once as it is: every answer has to be the
//! known one. Then it runs once for each [`Sabotage`]; the break is caught when
//! a control misbehaves, a subject becomes inconclusive, or an answer is no
//! longer the known one. Which of these it was is printed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use plugpull_model::event::Event;
use plugpull_model::plan::Plan;
use plugpull_model::verdict::{Exit, FindingKind, Role, RollUpCell, Verdict, misbehaving_controls};
use serde::Serialize;

use crate::context::Context;
use crate::error::{RunError, file_error};
use crate::judge::Sabotage;
use crate::run_dir::read_all_events;
use crate::runner::{Silent, start};
use crate::scenario_file::{LoadedScenario, Origin, parse, plan};

const SCENARIO: &str = include_str!("../../../fixtures/scenarios/selftest.toml");

/// One break of the product.
#[derive(Debug)]
pub struct Break {
    /// Its name.
    pub name: &'static str,
    /// What is broken, in words.
    pub what: &'static str,
    /// The break.
    pub sabotage: Sabotage,
}

/// Every break, in the order of the table.
pub const BREAKS: [Break; 10] = [
    Break {
        name: "acknowledgements-dropped",
        what: "the oracle is given a ledger without acknowledgements",
        sabotage: Sabotage::AcknowledgementsDropped,
    },
    Break {
        name: "acknowledged-early",
        what: "acknowledgements are entered one record too early",
        sabotage: Sabotage::AcknowledgedEarly,
    },
    Break {
        name: "flush-not-honoured",
        what: "a completed FLUSH makes nothing durable",
        sabotage: Sabotage::FlushNotHonoured,
    },
    Break {
        name: "survivors-too-few",
        what: "of all survivor sets only the fullest is tried",
        sabotage: Sabotage::AllKeptOnly,
    },
    Break {
        name: "no-tears",
        what: "tears inside a command are never tried",
        sabotage: Sabotage::NoTears,
    },
    Break {
        name: "pages-not-restored",
        what: "a crash image keeps pages of the one before it",
        sabotage: Sabotage::PagesNotRestored,
    },
    Break {
        name: "images-confused",
        what: "every image is taken for the first one",
        sabotage: Sabotage::ImagesConfused,
    },
    Break {
        name: "verdicts-cached",
        what: "an image's first verdict is kept for its later cuts",
        sabotage: Sabotage::VerdictsCached,
    },
    Break {
        name: "cuts-too-early",
        what: "cutting ends before the first acknowledgement",
        sabotage: Sabotage::CutsTooEarly,
    },
    Break {
        name: "observer-fails",
        what: "recovering an image fails inside the rig",
        sabotage: Sabotage::ObserverFails,
    },
];

/// By cell: verdict, distinct images, findings by kind.
type Answers = BTreeMap<String, Answer>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    role: Role,
    verdict: Verdict,
    images: u64,
    findings: BTreeMap<FindingKind, u64>,
    lost_on_a_mounted_image: bool,
}

/// How a break showed.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The break's name.
    pub name: String,
    /// What is broken.
    pub what: String,
    /// Whether it was caught.
    pub caught: bool,
    /// By what.
    pub by: String,
}

#[derive(Serialize)]
struct Json<'a> {
    honest: &'a Row,
    faults: &'a [Row],
}

/// Runs the self-test. Exits 0 when the honest product gives the known answers
/// and every break is caught, else 5.
///
/// # Errors
/// When the rig cannot do its job at all.
pub fn run(context: &Context, json: bool, out: &mut dyn Write) -> Result<Exit, RunError> {
    let folder = std::env::temp_dir().join(format!("plugpull-selftest-{}", std::process::id()));
    let outcome = all(context, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    let (honest, rows) = outcome?;
    let passed = honest.caught && rows.iter().all(|row| row.caught);
    let text = if json {
        let mut text = serde_json::to_string_pretty(&Json {
            honest: &honest,
            faults: &rows,
        })
        .unwrap_or_default();
        text.push('\n');
        text
    } else {
        table(&honest, &rows)
    };
    out.write_all(text.as_bytes()).map_err(file_error(
        "cannot print to",
        "standard output",
        "try again",
    ))?;
    Ok(if passed { Exit::Upheld } else { Exit::Failed })
}

fn all(context: &Context, folder: &Path) -> Result<(Row, Vec<Row>), RunError> {
    let scenario = parse(SCENARIO, "selftest.toml")?;
    let loaded = LoadedScenario {
        scenario,
        text: SCENARIO.to_owned(),
        origin: Origin::BuiltIn,
    };
    let plan = plan(&loaded, None)?;
    let known = known_answers();
    let answers = answers(context, &plan, &folder.join("honest"), Sabotage::None)?;
    let difference = difference(&known, &answers);
    let honest = Row {
        name: "none".to_owned(),
        what: "the product as it is gives the known answers".to_owned(),
        caught: difference.is_none(),
        by: difference.unwrap_or_else(|| "every answer is the known one".to_owned()),
    };
    let mut rows = Vec::new();
    for broken in &BREAKS {
        context.go_on()?;
        let answers = self::answers(context, &plan, &folder.join(broken.name), broken.sabotage)?;
        let by = shows(&known, &answers);
        rows.push(Row {
            name: broken.name.to_owned(),
            what: broken.what.to_owned(),
            caught: by.is_some(),
            by: by.unwrap_or_else(|| "NOTHING: every answer is the known one".to_owned()),
        });
    }
    Ok((honest, rows))
}

fn answers(
    context: &Context,
    plan: &Plan,
    out: &Path,
    sabotage: Sabotage,
) -> Result<Answers, RunError> {
    start(context, plan, out, sabotage, &mut Silent)?;
    context.go_on()?;
    let events = read_all_events(&out.join("events.jsonl"))?.events;
    let mut answers = Answers::new();
    for event in events {
        let Event::CellFinished {
            cell,
            verdict,
            coverage,
            findings,
            lost_on_a_mounted_image,
            ..
        } = event
        else {
            continue;
        };
        let role = plan.cell(&cell).map_or(Role::Subject, |cell| cell.role);
        answers.insert(
            cell,
            Answer {
                role,
                verdict,
                images: coverage.checked,
                findings,
                lost_on_a_mounted_image,
            },
        );
    }
    Ok(answers)
}

/// What gives a break away, the strongest sign first.
fn shows(known: &Answers, answers: &Answers) -> Option<String> {
    let cells: Vec<RollUpCell<'_>> = answers
        .iter()
        .map(|(id, answer)| RollUpCell {
            id,
            role: answer.role,
            verdict: &answer.verdict,
            lost_on_a_mounted_image: answer.lost_on_a_mounted_image,
        })
        .collect();
    if let Some(first) = misbehaving_controls(&cells).into_iter().next() {
        return Some(format!("control: {first}"));
    }
    let inconclusive = answers.iter().find(|(_, answer)| {
        answer.role == Role::Subject && matches!(answer.verdict, Verdict::Inconclusive(_))
    });
    if let Some((id, answer)) = inconclusive {
        return Some(format!(
            "{id} is inconclusive: {}",
            answer.verdict.reason().unwrap_or_default()
        ));
    }
    difference(known, answers)
}

fn difference(known: &Answers, answers: &Answers) -> Option<String> {
    for (id, expected) in known {
        let Some(found) = answers.get(id) else {
            return Some(format!("known answer: {id} gave none"));
        };
        if found != expected {
            return Some(format!(
                "known answer: {id} is {}, not {}",
                short(found),
                short(expected)
            ));
        }
    }
    (known.len() != answers.len()).then(|| "known answer: there is a cell too many".to_owned())
}

fn short(answer: &Answer) -> String {
    let findings: Vec<String> = answer
        .findings
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    let findings = if findings.is_empty() {
        "no finding".to_owned()
    } else {
        findings.join(", ")
    };
    format!(
        "{} with {findings} on {} images",
        answer.verdict.name(),
        answer.images
    )
}

fn table(honest: &Row, rows: &[Row]) -> String {
    let mut text = format!("{:<26} {:<8} {}\n", "planted into the rig", "caught", "by");
    for row in std::iter::once(honest).chain(rows) {
        let caught = match (row.name.as_str(), row.caught) {
            ("none", true) => "-",
            (_, true) => "yes",
            (_, false) => "NO",
        };
        text.push_str(&format!("{:<26} {caught:<8} {}\n", row.name, row.by));
    }
    let caught = rows.iter().filter(|row| row.caught).count();
    text.push_str(&format!(
        "{caught} of {} breaks of the rig were caught\n",
        rows.len()
    ));
    text
}

/// The known answers follow from the crash model by counting; nothing here was
/// copied from a run. One writer, 6 records, every event in order.
///
/// *Honest and protected*: at most one record is ever pending, so the images
/// are those with the first 0, 1, ..., 6 records: 7.
///
/// *`flush@lying`*: four events a record. A cut sees `s` records submitted and
/// `a` acknowledged; every subset of the `s` may be there, 2^s images, of which
/// 2^(s-a) have lost nothing acknowledged. Over the cuts 0..=24, with `s = a =
/// k` once for k = 0..=6 and `s = k + 1, a = k` three times for k = 0..=5, the
/// sum of 2^s - 2^(s-a) is 120 + 342 = 462; all images together are 2^6 = 64.
///
/// *`fua@lying-512`*: two events and two blocks a record: 4^s images. Two of an
/// acknowledged record's four outcomes are torn, so torn are 4^s - 2^a 4^(s-a).
/// Recovery of an append log ends at its first bad record and loses what
/// follows, so nothing is lost only where the acknowledged records are whole up
/// to some point and torn from there on, 2^(a+1) - 1 ways: lost are 4^s -
/// (2^(a+1) - 1) 4^(s-a). With `s = a = k` once for k = 0..=6 and `s = k + 1, a
/// = k` once for k = 0..=5 the sums are 5214 + 4980 = 10194 and 5334 + 5208 =
/// 10542, on 4^6 = 4096 images.
fn known_answers() -> Answers {
    let upheld = |role: Role, images: u64| Answer {
        role,
        verdict: Verdict::Upheld,
        images,
        findings: BTreeMap::new(),
        lost_on_a_mounted_image: false,
    };
    let violated = |images: u64, findings: &[(FindingKind, u64)]| Answer {
        role: Role::MustFail,
        verdict: Verdict::Violated,
        images,
        findings: findings.iter().copied().collect(),
        lost_on_a_mounted_image: true,
    };
    [
        ("flush@protected", upheld(Role::Subject, 7)),
        ("fua@protected", upheld(Role::Subject, 7)),
        ("noflush@protected", upheld(Role::Subject, 7)),
        ("flush@volatile", upheld(Role::MustPass, 7)),
        ("fua@volatile", upheld(Role::MustPass, 7)),
        ("flush@lying", violated(64, &[(FindingKind::Lost, 462)])),
        (
            "fua@lying-512",
            violated(
                4096,
                &[(FindingKind::Lost, 10_194), (FindingKind::Torn, 10_542)],
            ),
        ),
    ]
    .into_iter()
    .map(|(id, answer)| (id.to_owned(), answer))
    .collect()
}
