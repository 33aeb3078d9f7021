//! The program on the first screen of the README, and of the package's own, compiles, and lets one
//! of two callers book.

use advisory_tests::Database;

const READMES: [&str; 2] = [
    include_str!("../../../README.md"),
    include_str!("../../../advisory-runtime/README.md"),
];

/// The first block of code in this language.
fn block<'p>(page: &'p str, language: &str) -> Option<&'p str> {
    let after = page.split(&format!("```{language}\n")).nth(1);
    after.and_then(|rest| rest.split("```").next())
}

#[test]
fn each_readme_shows_this_program_whole() {
    let source = include_str!("../../quickstart.rs");
    let begin = source.find("use ").expect("the program itself");
    for page in READMES {
        assert_eq!(block(page, "rust"), Some(&source[begin..]));
    }
    let [ours, packages] = READMES.map(|page| block(page, "sh"));
    assert_eq!(ours, packages, "what is installed");
}

#[test]
fn one_of_two_callers_books() {
    let runtime = &crate::SERVER.1;
    let db = runtime.block_on(Database::create());
    let printed = crate::printed_by("quickstart", &[db.url()]);
    let either = [
        "Ann booked: true, Bob booked: false\n",
        "Ann booked: false, Bob booked: true\n",
    ];
    assert!(either.contains(&printed.as_str()), "{printed}");
}
