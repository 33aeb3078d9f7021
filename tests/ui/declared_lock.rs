use advisory_runtime::LockKey;

#[derive(LockKey)]
#[lock_key("account:<id>")]
enum Enum {
    Id(i64),
}

#[derive(LockKey)]
#[lock_key("account:<idd>")]
struct UnknownField {
    id: i64,
}

#[derive(LockKey)]
#[lock_key("task:<id>", with(end = "\0"))]
struct UnusedValue {
    id: i64,
}

#[derive(LockKey)]
struct NoPattern {
    id: i64,
}

#[derive(LockKey)]
#[lock_key("account:<id>")]
struct NoNames(i64);

fn main() {}
