
/// Which mutant is switched on: written by `scripts/mutants`.
#[allow(warnings)]
mod __mutant {
    use std::{collections::HashSet, env, fs::OpenOptions, io::Write, sync::{Mutex, OnceLock}};

    struct Switch {
        on: u32,
        reached: Option<Mutex<(HashSet<u32>, std::fs::File)>>,
    }

    /// Whether the variable `MUTANT` names this mutant. Appends the number to the file that `MUTANTS_REACHED` names, once per process.
    pub(crate) fn is(number: u32) -> bool {
        static SWITCH: OnceLock<Switch> = OnceLock::new();
        let switch = SWITCH.get_or_init(|| Switch {
            on: env::var("MUTANT").ok().and_then(|on| on.parse().ok()).unwrap_or(0),
            reached: env::var_os("MUTANTS_REACHED").map(|path| {
                let file = OpenOptions::new().create(true).append(true).open(path);
                Mutex::new((HashSet::new(), file.expect("the file of reached mutants")))
            }),
        });
        if let Some(reached) = &switch.reached {
            let mut reached = reached.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if reached.0.insert(number) {
                let line = format!("{number}\n");
                reached.1.write_all(line.as_bytes()).expect("the file of reached mutants");
            }
        }
        switch.on == number
    }
}
