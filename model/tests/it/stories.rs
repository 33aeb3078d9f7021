//! Each bug is found, and its story can be read.

use advisory_model::{Bug, find, story};
use stateright::Model as _;

#[test]
fn each_bug_is_found() {
    for bug in Bug::ALL {
        let Some((model, actions)) = find(bug) else {
            panic!("`{}` is not found", bug.name());
        };
        let mut state = model.start();
        for action in &actions {
            assert!(bug.property().is_true(&state), "`{}`", bug.name());
            state = model.next_state(&state, *action).unwrap();
        }
        assert!(!bug.property().is_true(&state), "`{}`", bug.name());
        let story = story(&model, &actions);
        assert_eq!(story.lines().count(), actions.len(), "{story}");
    }
}

/// A holder that lost its lease to a take-over reads its own number in the row again.
#[test]
fn the_story_of_a_late_try_is_this() {
    let (model, actions) = find(Bug::GrantAlone).unwrap();
    let story = story(&model, &actions);
    let late = "The first try of A arrives now. The row with token 3 has 2 left.";
    assert!(story.contains(late), "{story}");
    assert!(story.contains("with token 1.\n"), "{story}");
}

#[test]
fn an_unknown_bug_is_answered_with_the_list() {
    let error = "nwo".parse::<Bug>().unwrap_err();
    assert!(error.contains("write one of now, swept-token"), "{error}");
}
