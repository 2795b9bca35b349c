"""Specs of jobs as typed Python: a class for each message of a job file.

    spec = JobSpec(
        base_model="smollm2-135m-instruct",
        environment=EnvironmentSpec(name="email_search"),
        training=TrainingSpec(steps=20, learning_rate=2e-4, lora=LoraSpec(rank=16)),
    )

Names, types, words, bounds and defaults are the contract's, from which `generated` is written
(`make proto`); what is wrong is said as for a job file, by the same reader.
"""
