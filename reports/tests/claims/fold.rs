use plugpull_model::coverage::Coverage;
use plugpull_model::event::Event;
use plugpull_model::units::{Position, Trial};
use plugpull_model::verdict::{
    Exit, Finding, FindingKind, InconclusiveReason, Role, Verdict, roll_up,
};
use plugpull_reports::{Report, Style};
use serde_json::Value;

use crate::samples::*;

fn json(events: &[Event]) -> Value {
    serde_json::from_str(&Report::from_events(events).to_json()).expect("JSON")
}

fn one_subject(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    std::iter::once(started(vec![name("s", "d", Role::Subject)]))
        .chain(events)
        .collect()
}

#[test]
fn folding_one_by_one_is_folding_all() {
    let events = quickstart();
    let mut report = Report::new();
    for event in &events {
        report.fold(event);
    }
    assert_eq!(report.to_json(), Report::from_events(&events).to_json());
}

#[test]
fn no_events_are_no_pass() {
    let report = Report::new();
    assert_eq!(
        report.verdict(),
        Verdict::Inconclusive(InconclusiveReason::NotFinished)
    );
    assert_eq!(report.exit(), Exit::Inconclusive);
    assert_eq!(report.verdict(), roll_up(&[]));
}

#[test]
fn a_whole_run_gets_the_models_verdict() {
    assert_eq!(
        Report::from_events(&quickstart()).verdict(),
        Verdict::Violated
    );
    assert_eq!(Report::from_events(&upheld()).exit(), Exit::Upheld);
    assert_eq!(Report::from_events(&blind()).exit(), Exit::Inconclusive);
}

#[test]
fn no_prefix_of_a_run_panics_or_is_better_than_inconclusive() {
    for events in [quickstart(), upheld(), blind()] {
        // Without the last event every cell is finished: that is a whole run
        // whose runner is about to write its verdict.
        let last_end = events
            .iter()
            .rposition(|event| matches!(event, Event::CellFinished { .. }))
            .expect("an end");
        for length in 0..=last_end {
            let report = Report::from_events(&events[..length]);
            render(&report);
            assert!(
                matches!(report.exit(), Exit::Violated | Exit::Inconclusive),
                "{length} events gave {:?}",
                report.exit()
            );
        }
    }
}

#[test]
fn no_order_and_no_choice_of_events_panics_or_hides_a_violation() {
    let events = quickstart();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("small")
    };
    for _ in 0..500 {
        let chosen: Vec<Event> = (0..draw(40))
            .map(|_| events[draw(events.len())].clone())
            .collect();
        let report = Report::from_events(&chosen);
        render(&report);
        let json: Value = serde_json::from_str(&report.to_json()).expect("JSON");
        for event in &chosen {
            if let Event::Found { finding } = event {
                let cell = cell(&json, &finding.cell);
                assert_eq!(cell["verdict"], "violated", "{}", finding.cell);
            }
        }
    }
}

fn render(report: &Report) {
    for width in [0, 20, 80, 120] {
        assert!(
            !report
                .to_table(Style {
                    colour: width == 80,
                    width
                })
                .is_empty()
        );
    }
    assert!(report.to_html().ends_with("</html>\n"));
}

fn cell<'a>(json: &'a Value, id: &str) -> &'a Value {
    json["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .find(|cell| cell["id"] == id)
        .expect("the cell is there")
}

#[test]
fn an_unfinished_cell_with_a_finding_is_violated_and_says_it_was_not_finished() {
    let events = one_subject([
        cell_started("s@d", 1),
        recorded("s@d", 1),
        found(lost("s@d", 1)),
    ]);
    let json = json(&events);
    assert_eq!(json["verdict"], "violated");
    assert_eq!(json["finished"], false);
    let cell = cell(&json, "s@d");
    assert_eq!(cell["verdict"], "violated");
    assert_eq!(cell["findings"]["lost"], 1);
    assert!(
        cell["reason"]
            .as_str()
            .expect("a reason")
            .contains("not finished")
    );
}

#[test]
fn an_unfinished_cell_counts_pairs_of_image_and_cut_once() {
    let one = lost("s@d", 1);
    let mut other_record = one.clone();
    other_record.id = "s@d#2".to_owned();
    other_record.breach.object = "log-1".to_owned();
    let mut other_cut = one.clone();
    other_cut.cut = Position(900);
    let events = one_subject([found(one), found(other_record), found(other_cut)]);
    assert_eq!(cell(&json(&events), "s@d")["findings"]["lost"], 2);
}

#[test]
fn a_violated_trial_is_not_erased_by_a_later_one() {
    let kinds = [(FindingKind::Lost, 3)];
    let events = one_subject([
        cell_started("s@d", 1),
        recorded("s@d", 1),
        found(lost("s@d", 1)),
        finished("s@d", 1, Verdict::Violated, sampled(), &kinds),
        Event::RunResumed,
        cell_started("s@d", 2),
        recorded("s@d", 2),
        finished("s@d", 2, Verdict::Upheld, exhaustive(), &[]),
    ]);
    let json = json(&events);
    let cell = cell(&json, "s@d");
    assert_eq!(cell["verdict"], "violated");
    assert_eq!(cell["findings"]["lost"], 3);
    assert_eq!(
        cell["crash_states"]["exhaustive"], true,
        "from the last trial"
    );
    assert_eq!(cell["trials"], 2);
}

#[test]
fn findings_of_all_trials_add_up() {
    let second = Finding {
        trial: Trial(2),
        ..lost("s@d", 9)
    };
    let kinds = [(FindingKind::Lost, 5)];
    let events = one_subject([
        cell_started("s@d", 1),
        found(lost("s@d", 1)),
        Event::RunResumed,
        cell_started("s@d", 2),
        found(second),
        finished("s@d", 2, Verdict::Violated, sampled(), &kinds),
    ]);
    assert_eq!(cell(&json(&events), "s@d")["findings"]["lost"], 6);
}

#[test]
fn an_abandoned_trial_without_findings_gives_way_to_the_next() {
    let events = one_subject([
        cell_started("s@d", 1),
        recorded("s@d", 1),
        Event::RunResumed,
        cell_started("s@d", 2),
        recorded("s@d", 2),
        finished("s@d", 2, Verdict::Upheld, exhaustive(), &[]),
    ]);
    assert_eq!(Report::from_events(&events).verdict(), Verdict::Upheld);
}

#[test]
fn a_cell_is_inconclusive_if_any_of_its_trials_is() {
    let open = Verdict::Inconclusive(InconclusiveReason::TrialFailed("disk full".to_owned()));
    let events = one_subject([
        finished("s@d", 1, open.clone(), Coverage::default(), &[]),
        finished("s@d", 2, Verdict::Upheld, exhaustive(), &[]),
    ]);
    assert_eq!(Report::from_events(&events).verdict(), open);
}

#[test]
fn a_trial_in_progress_makes_an_upheld_cell_unfinished() {
    let events = one_subject([
        finished("s@d", 1, Verdict::Upheld, exhaustive(), &[]),
        cell_started("s@d", 2),
    ]);
    assert_eq!(Report::from_events(&events).exit(), Exit::Inconclusive);
}

#[test]
fn an_unfinished_must_fail_control_proves_nothing() {
    let mut events = upheld();
    events.retain(
        |event| !matches!(event, Event::CellFinished { cell, .. } if cell == "ext4-barrier@lying"),
    );
    assert_eq!(Report::from_events(&events).exit(), Exit::Inconclusive);
    let reason = json(&events)["reason"].to_string();
    assert!(
        reason.contains("ext4-barrier@lying has not run to its end"),
        "{reason}"
    );
}

#[test]
fn counts_without_a_verdict_still_violate() {
    let kinds = [(FindingKind::Torn, 1)];
    let events = one_subject([finished("s@d", 1, Verdict::Upheld, exhaustive(), &kinds)]);
    assert_eq!(Report::from_events(&events).verdict(), Verdict::Violated);
}

#[test]
fn a_contractual_loss_is_reported_and_does_not_violate() {
    let mut loss = lost("s@d", 1);
    loss.breach.contractual = true;
    let events = one_subject([
        cell_started("s@d", 1),
        recorded("s@d", 1),
        found(loss),
        finished("s@d", 1, Verdict::Upheld, exhaustive(), &[]),
    ]);
    let report = Report::from_events(&events);
    assert_eq!(report.verdict(), Verdict::Upheld);
    let json: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let cell = cell(&json, "s@d");
    assert_eq!(cell["contractual"]["lost"], 1);
    assert_eq!(cell["findings"], serde_json::json!({}));
    assert_eq!(cell["first_finding"], Value::Null);
    assert!(report.to_table(Style::default()).contains("contractual"));
}

#[test]
fn a_finding_of_a_cell_nobody_announced_is_kept() {
    let events = one_subject([found(lost("other@drive", 1))]);
    let json = json(&events);
    assert_eq!(json["verdict"], "violated");
    assert_eq!(cell(&json, "other@drive")["drive"], "drive");
}

#[test]
fn a_cell_nobody_announced_has_the_names_and_the_role_of_its_plan() {
    let plan = planned("stack@lying");
    let json = json(&[Event::Planned {
        cell: Box::new(plan),
    }]);
    let cell = cell(&json, "stack@lying");
    assert_eq!(cell["stack"], "stack");
    assert_eq!(cell["role"], "must-fail");
    assert_eq!(cell["verdict"], "inconclusive");
}

#[test]
fn a_plan_does_not_change_what_the_run_announced() {
    let plan = planned("ext4-barrier@lying");
    let mut events = upheld();
    let before = json(&events);
    events.insert(
        1,
        Event::Planned {
            cell: Box::new(plan),
        },
    );
    let mut after = json(&events);
    let told = after["cells"][1].as_object_mut().expect("a cell");
    for key in [
        "drive_settings",
        "stack_settings",
        "workload",
        "faults",
        "faults_seed",
    ] {
        assert!(!told[key].is_null(), "{key}");
        told[key] = Value::Null;
    }
    assert_eq!(after, before);
}

#[test]
fn a_run_that_went_on_elsewhere_names_both_environments() {
    let mut events = upheld();
    events.extend([environment("6.1.0"), environment("6.1.0")]);
    let one = json(&events);
    assert_eq!(one["environment"]["kernel"], "6.1.0");
    assert_eq!(one["earlier_environments"], serde_json::json!([]));
    events.extend([Event::RunResumed, environment("6.18.0")]);
    let two = json(&events);
    assert_eq!(two["environment"]["kernel"], "6.18.0");
    assert_eq!(two["earlier_environments"][0]["kernel"], "6.1.0");
    let page = Report::from_events(&events).to_html();
    assert!(page.contains("6.1.0") && page.contains("6.18.0"));
    assert!(page.contains("resumed in another environment"));
}
