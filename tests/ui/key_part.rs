use advisory_runtime::KeyPart;

#[derive(KeyPart)]
enum Payload {
    Payment(i64),
    Refund,
}

#[derive(KeyPart)]
enum OneTextTwice {
    #[key_part("Refund")]
    Payment,
    Refund,
}

#[derive(KeyPart)]
struct TwoFields {
    region: String,
    number: i64,
}

fn main() {}
