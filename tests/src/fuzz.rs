//! Targets of a fuzzer, which run as tests with the inputs of their corpus.

use std::fs;
use std::path::PathBuf;

/// Runs the target with each file of the corpus; in `scripts/fuzz` with what libFuzzer makes of
/// them.
pub fn fuzz(corpus: &str, target: impl Fn(&[u8]) + 'static) {
    let mut files: Vec<PathBuf> = fs::read_dir(corpus)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{corpus} has no input");
    #[cfg(fuzzing)]
    engine::run(corpus, Box::leak(Box::new(target)));
    #[cfg(not(fuzzing))]
    for file in files {
        // Shown if the target panics.
        eprintln!("{}", file.display());
        target(&fs::read(&file).expect("a file"));
    }
}

#[cfg(fuzzing)]
#[allow(unsafe_code, reason = "libFuzzer is a library in C++")]
mod engine {
    use std::cell::Cell;
    use std::env;
    use std::ffi::{CString, c_char, c_int};

    use libfuzzer_sys as _;

    thread_local! {
        static TARGET: Cell<Option<&'static dyn Fn(&[u8])>> = const { Cell::new(None) };
    }

    type Callback = unsafe extern "C" fn(*const u8, usize) -> c_int;

    unsafe extern "C" {
        fn LLVMFuzzerRunDriver(
            argc: *mut c_int,
            argv: *mut *mut *mut c_char,
            callback: Callback,
        ) -> c_int;
        /// Of `libfuzzer_sys`: calls the function below.
        fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> c_int;
    }

    /// Called by `libfuzzer_sys`, on the thread of the driver.
    // SAFETY: no other crate of the program has a function of this name.
    #[unsafe(no_mangle)]
    fn rust_fuzzer_test_input(input: &[u8]) -> i32 {
        if let Some(target) = TARGET.get() {
            target(input);
        }
        0
    }

    /// Runs until the target fails or the time is over, with the arguments in `ADVISORY_FUZZ`, and
    /// ends the process.
    pub(super) fn run(corpus: &str, target: &'static dyn Fn(&[u8])) {
        TARGET.set(Some(target));
        // A panic is a finding at once, with its input.
        libfuzzer_sys::initialize(std::ptr::null(), std::ptr::null());
        let given = env::var("ADVISORY_FUZZ").expect("`scripts/fuzz` sets it");
        let words = ["fuzz"].into_iter().chain(given.split(' ')).chain([corpus]);
        let words = words.map(|word| CString::new(word).expect("no NUL").into_raw());
        let mut words: Vec<*mut c_char> = words.chain([std::ptr::null_mut()]).collect();
        let mut count = c_int::try_from(words.len() - 1).expect("a few words");
        let mut first = words.as_mut_ptr();
        // SAFETY: the words end with a null pointer, and live until the process ends.
        let code = unsafe { LLVMFuzzerRunDriver(&mut count, &mut first, LLVMFuzzerTestOneInput) };
        std::process::exit(code);
    }
}
