use plugpull_model::event::Event;
use plugpull_model::verdict::{Role, Verdict};
use plugpull_reports::{Report, Style, finding_in_words};

use crate::samples::*;

const PLAIN: Style = Style {
    colour: false,
    width: 120,
};

fn table(events: &[Event], style: Style) -> String {
    Report::from_events(events).to_table(style)
}

#[test]
fn the_table_tells_a_safe_stack_from_an_unsafe_one() {
    insta::assert_snapshot!(table(&quickstart(), PLAIN));
}

#[test]
fn the_table_paints_verdicts_when_asked() {
    let style = Style {
        colour: true,
        ..PLAIN
    };
    insta::assert_snapshot!(table(&quickstart(), style).replace('\u{1b}', "ESC"));
}

#[test]
fn an_upheld_run_says_so_in_its_last_line() {
    insta::assert_snapshot!(table(&upheld(), PLAIN));
}

#[test]
fn a_blind_control_is_named_and_spoils_the_run() {
    insta::assert_snapshot!(table(&blind(), PLAIN));
}

#[test]
fn a_killed_run_shows_what_it_found() {
    insta::assert_snapshot!(table(&killed(), PLAIN));
}

#[test]
fn an_empty_run_has_a_verdict() {
    insta::assert_snapshot!(table(&[], PLAIN));
}

#[test]
fn where_no_table_fits_each_cell_is_a_paragraph() {
    let style = Style {
        colour: false,
        width: 72,
    };
    insta::assert_snapshot!(table(&quickstart(), style));
}

#[test]
fn no_line_is_wider_than_asked_but_commands() {
    for width in [60, 72, 80, 100, 110, 120, 132, 200] {
        let style = Style {
            colour: false,
            width,
        };
        for events in [quickstart(), upheld(), blind(), killed()] {
            for line in table(&events, style).lines() {
                assert!(
                    line.chars().count() <= width || line.starts_with("  reproduce: "),
                    "wider than {width}: {line}"
                );
            }
        }
    }
}

#[test]
fn the_command_that_reproduces_a_finding_stays_whole_on_its_line() {
    for width in [1, 40, 120] {
        let style = Style {
            colour: true,
            width,
        };
        let table = table(&quickstart(), style);
        let command = lost("ext4-nobarrier@volatile", 1).reproduce;
        assert!(
            table
                .lines()
                .any(|line| line == format!("  reproduce: {command}")),
            "{table}"
        );
    }
}

#[test]
fn every_violated_cell_has_its_command() {
    let table = table(&quickstart(), PLAIN);
    let commands = table.lines().filter(|line| line.starts_with("  reproduce"));
    assert_eq!(commands.count(), 4);
}

#[test]
fn colour_changes_nothing_but_colour() {
    let painted = table(
        &quickstart(),
        Style {
            colour: true,
            ..PLAIN
        },
    );
    let mut plain = String::new();
    let mut rest = painted.as_str();
    while let Some(start) = rest.find('\u{1b}') {
        plain.push_str(&rest[..start]);
        let end = rest[start..].find('m').expect("a whole sequence");
        rest = &rest[start + end + 1..];
    }
    plain.push_str(rest);
    assert_eq!(plain, table(&quickstart(), PLAIN));
}

#[test]
fn no_report_holds_an_em_dash_or_a_confidence() {
    for events in [quickstart(), upheld(), blind(), killed()] {
        let report = Report::from_events(&events);
        for text in [report.to_table(PLAIN), report.to_html(), report.to_json()] {
            assert!(!text.contains('\u{2014}'));
            assert!(!text.contains("confidence"));
            assert!(!text.contains("upper bound"));
        }
    }
}

#[test]
fn kernel_words_cannot_steer_the_terminal() {
    let cell = "s@d";
    let events = [
        started(vec![name("s", "d", Role::Subject)]),
        finished(
            cell,
            1,
            Verdict::Refused("bad\u{1b}[2J\r\nmount".to_owned()),
            exhaustive(),
            &[],
        ),
    ];
    let table = table(&events, PLAIN);
    assert!(!table.contains('\u{1b}') && !table.contains('\r'));
    assert!(table.contains("refused s@d: bad [2J mount"), "{table}");
}

#[test]
fn a_finding_is_told_in_one_sentence() {
    let words: Vec<String> = [
        lost("c", 1),
        unmountable("c", 2),
        on_a_raw_device("c", 3),
        after_recovery(),
    ]
    .iter()
    .map(finding_in_words)
    .collect();
    insta::assert_snapshot!(words.join("\n"));
}

fn after_recovery() -> plugpull_model::verdict::Finding {
    let mut finding = lost("c", 4);
    finding.breach.after_recovery = true;
    finding.breach.expected = plugpull_model::verdict::Fate::Forbidden;
    finding.breach.kind = plugpull_model::verdict::FindingKind::Unexpected;
    finding.breach.acknowledged_at = None;
    finding.breach.observed = String::new();
    if let Some(record) = &mut finding.breach.record {
        record.version = 3;
    }
    finding
}

#[test]
fn planted_faults_are_named_below_the_rows() {
    let table = table(&quickstart(), PLAIN);
    let (_, below) = table.split_once("\n\n").expect("something below the rows");
    let lines: Vec<&str> = below
        .lines()
        .filter(|line| line.starts_with("planted faults in "))
        .collect();
    assert_eq!(
        lines,
        ["planted faults in ext4-barrier@volatile-512: shorn, write-eio from base+5 until base+9"]
    );
}
