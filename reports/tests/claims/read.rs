use std::io::{self, BufReader, Cursor, Read};

use plugpull_model::event::Event;
use plugpull_reports::{MAX_LINE_BYTES, ReportError, read_events, read_events_file};

use crate::samples::*;

fn lines(events: &[Event]) -> String {
    events
        .iter()
        .map(|event| serde_json::to_string(event).expect("JSON") + "\n")
        .collect()
}

#[test]
fn what_was_written_is_read() {
    let events = quickstart();
    assert_eq!(
        read_events(lines(&events).as_bytes()).expect("events"),
        events
    );
}

#[test]
fn a_file_cut_at_any_byte_gives_the_whole_lines_before() {
    let events = killed();
    let text = lines(&events);
    for length in 0..=text.len() {
        let file = read_events_file(&text.as_bytes()[..length]).expect("a killed run is readable");
        let kept = lines(&file.events);
        assert!(text.starts_with(&kept));
        let newline = usize::from(!file.ends_with_newline);
        assert_eq!(file.whole_bytes, (kept.len() - newline) as u64);
        assert!(kept.len() >= text[..length].rfind('\n').map_or(0, |at| at + 1));
    }
}

#[test]
fn zeros_at_the_end_which_a_crashed_host_leaves_are_dropped() {
    let mut bytes = lines(&killed()).into_bytes();
    bytes.extend([0; 300]);
    assert_eq!(read_events(&bytes[..]).expect("events"), killed());
}

#[test]
fn garbage_before_the_last_line_names_the_line_and_the_remedy() {
    let text = lines(&killed());
    let mut broken: Vec<&str> = text.lines().collect();
    broken[2] = "{\"found\":";
    let error = read_events(broken.join("\n").as_bytes()).expect_err("an error");
    let words = error.to_string();
    assert!(matches!(error, ReportError::Garbage { line: 3, .. }));
    assert!(words.contains("events.jsonl line 3"), "{words}");
    assert!(words.contains("head -n 2 events.jsonl"), "{words}");
    assert!(!words.contains('\n'), "{words}");
}

#[test]
fn a_last_line_with_its_newline_is_not_half() {
    let whole = killed();
    let text = lines(&whole) + "nonsense\n";
    let error = read_events(text.as_bytes()).expect_err("an error");
    let expected = whole.len() as u64 + 1;
    assert!(matches!(error, ReportError::Garbage { line, .. } if line == expected));
}

#[test]
fn an_endless_line_is_refused_and_not_held() {
    let start = lines(&killed()[..1]);
    let endless = Cursor::new(start).chain(io::repeat(b'x'));
    let error = read_events(BufReader::new(endless)).expect_err("an error");
    assert!(matches!(error, ReportError::LineTooLong { line: 2 }));
    assert!(error.to_string().contains(&MAX_LINE_BYTES.to_string()));
}

#[test]
fn the_start_of_the_largest_run_fits_the_bound() {
    let long = "n".repeat(64);
    let cells = (0..plugpull_model::plan::MAX_CELLS)
        .map(|_| name(&long, &long, plugpull_model::verdict::Role::MustFail))
        .collect();
    assert!((lines(&[started(cells)]).len() as u64) < MAX_LINE_BYTES);
}

#[test]
fn another_schema_a_second_run_and_a_missing_start_are_refused() {
    let run = |schema: u32, run: &str| {
        format!(
            "{{\"run-started\":{{\"schema\":{schema},\"scenario\":\"q\",\"seed\":1,\"run\":\"{run}\",\"cells\":[]}}}}\n"
        )
    };
    let error = |text: String| read_events(text.as_bytes()).expect_err("an error");
    assert!(matches!(
        error(run(99, "a")),
        ReportError::Schema { found: 99, line: 1 }
    ));
    assert!(matches!(
        error(run(1, "a") + &run(1, "b")),
        ReportError::SecondRun { line: 2, .. }
    ));
    assert!(matches!(
        error("\"run-resumed\"\n".to_owned()),
        ReportError::NoStart { line: 1 }
    ));
    assert!(read_events((run(1, "a") + &run(1, "a")).as_bytes()).is_ok());
}

#[test]
fn a_read_that_fails_names_the_line() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("I/O error"))
        }
    }
    let text = lines(&killed()[..1]);
    let error = read_events(BufReader::new(Cursor::new(text).chain(Broken))).expect_err("an error");
    assert!(matches!(error, ReportError::Read { line: 2, .. }));
    assert!(error.to_string().contains("I/O error"));
}
