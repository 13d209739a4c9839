"""Makes statistics.json: what SciPy and statsmodels say of given series, for the tests of crates/measure/src/statistics.

    python3 -m venv venv && venv/bin/pip install scipy statsmodels && venv/bin/python make.py > statistics.json

All series hold single-precision numbers, as the code under test keeps them; the same versions give the same file.
"""

import json

import numpy as np
import scipy
import statsmodels
from scipy import stats
from statsmodels.tsa.stattools import acf, adfuller


def single(values):
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def autoregressive(rng, count, coefficients):
    values = np.zeros(count + 50)
    for at in range(len(coefficients), len(values)):
        past = sum(c * values[at - 1 - lag] for lag, c in enumerate(coefficients))
        values[at] = past + rng.standard_normal()
    return single(10 + values[50:])


def series():
    rng = np.random.default_rng(4)
    return {
        "noise": single(rng.standard_normal(60)),
        "exponential": single(rng.exponential(size=128)),
        "first order, 0.5": autoregressive(rng, 128, [0.5]),
        "first order, 0.97": autoregressive(rng, 200, [0.97]),
        "second order": autoregressive(rng, 150, [1.2, -0.5]),
        "random walk": single(np.cumsum(rng.standard_normal(200))),
        "trend": single(0.05 * np.arange(100) + rng.standard_normal(100)),
        "short": single(rng.standard_normal(24)),
        "ties": single(rng.integers(0, 6, size=90)),
    }


def dickey_fuller(values):
    statistic, p_value, lags, observations, *_ = adfuller(values, regression="c", autolag="AIC")
    return {"statistic": statistic, "p_value": p_value, "lags": int(lags), "observations": int(observations)}


def anderson_darling(values, samples):
    """Against the uniform distribution that is known in full; the p-value is from random samples."""
    found = stats.goodness_of_fit(
        stats.uniform,
        values,
        known_params={"loc": 0, "scale": 1},
        statistic="ad",
        n_mc_samples=samples,
        rng=np.random.default_rng(5),
    )
    return {"values": list(values), "statistic": found.statistic, "p_value_sampled": found.pvalue}


def reference():
    return {
        "normal_cdf": [[z, stats.norm.cdf(z)] for z in (-8.0, -3.0, -1.0, 0.0, 0.5, 2.5)],
        "student_beyond": [[t, df, 2 * stats.t.sf(t, df)] for t in (0.1, 1.0, 2.5, 9.0) for df in (1.0, 4.5, 46.5, 1e4, 1e6)],
        "student_within": [[c, df, stats.t.ppf((1 + c) / 2, df)] for c in (0.5, 0.95, 0.999) for df in (1.0, 4.5, 46.5, 1e6)],
        "beta_cdf": [
            [x, a, b, stats.beta.cdf(x, a, b)]
            for x, a, b in ((0.3, 2.0, 5.0), (0.99, 990.0, 11.0), (0.5, 0.5, 0.5), (0.989, 99000.0, 1001.0), (0.01, 0.1, 30.0))
        ],
        "clopper_pearson": [
            [k, n, *stats.binomtest(k, n).proportion_ci(0.95, "exact")] for k, n in ((1, 20), (990, 1000), (71280, 72000))
        ],
    }


def main():
    rng = np.random.default_rng(6)
    exact = np.sort(rng.uniform(size=40))
    many = rng.uniform(size=1000)
    result = {
        "versions": {"numpy": np.__version__, "scipy": scipy.__version__, "statsmodels": statsmodels.__version__},
        "reference": reference(),
        "series": [
            {
                "name": name,
                "values": list(values),
                "autocorrelation": list(acf(values, nlags=12, adjusted=False, fft=False)),
                "dickey_fuller": dickey_fuller(values),
            }
            for name, values in series().items()
        ],
        "anderson_darling": [
            anderson_darling(values, 20_000) for values in (exact, exact**1.5, exact * 0.8 + 0.1, many[:200], many**1.08)
        ],
    }
    print(json.dumps(result, indent=1))


main()
