
/// Which mutant is switched on: written by `scripts/mutants`.
#[allow(warnings)]
mod __mutant {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, OnceLock};
    use std::{env, fs::File, io::Write};

    struct Switch {
        on: u32,
        reached: Option<Mutex<File>>,
    }

    /// Whether the variable `MUTANT` names this mutant. Appends the number to the file that `MUTANTS_REACHED` names, once per process.
    pub(crate) fn is(number: u32) -> bool {
        static SWITCH: OnceLock<Switch> = OnceLock::new();
        static SEEN: [AtomicBool; 16_384] = [const { AtomicBool::new(false) }; 16_384];
        let switch = SWITCH.get_or_init(|| Switch {
            on: env::var("MUTANT").ok().and_then(|on| on.parse().ok()).unwrap_or(0),
            reached: env::var_os("MUTANTS_REACHED").map(|path| {
                let file = File::options().create(true).append(true).open(path);
                Mutex::new(file.expect("the file of reached mutants"))
            }),
        });
        if let Some(reached) = &switch.reached
            && !SEEN[number as usize].load(Ordering::Relaxed)
            && !SEEN[number as usize].swap(true, Ordering::Relaxed)
        {
            let mut reached = reached.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let line = format!("{number}\n");
            reached.write_all(line.as_bytes()).expect("the file of reached mutants");
        }
        switch.on == number
    }
}
