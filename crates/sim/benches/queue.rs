//! What a request costs at the queue grain: one core, exponential service, load 0.8.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_sim::queue::System;

fn queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    group.sample_size(10);
    group.throughput(Throughput::Elements(REQUESTS));
    for (groups, policy) in [(1, "jbsq:2"), (1, "jbsq:1"), (1, "jsq:2"), (1, "random"), (1, "rr"), (16, "jbsq:2")] {
        let service = Distribution::parse("exp:1us", Unit::Time).unwrap();
        let system = System { groups, ..System::new(16 / groups, policy.parse().unwrap(), service) };
        let system = system.at_load(0.8).for_requests(REQUESTS);
        let layout = format!("{groups}x{}", system.workers);
        let mut seed = 0;
        group.bench_function(BenchmarkId::new(layout, policy), |bencher| {
            bencher.iter(|| {
                seed += 1;
                system.run(seed).unwrap()
            });
        });
    }
    group.finish();
}

const REQUESTS: u64 = 1_000_000;

criterion_group!(benches, queue);
criterion_main!(benches);
