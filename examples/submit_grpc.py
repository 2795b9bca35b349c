"""Submits a job with plain gRPC and the generated contracts, and prints what happens to it."""

import sys

import grpc
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.types.v1 import spec_pb2

spec = spec_pb2.JobSpec(base_model="smollm2-135m-instruct", seed=1)
spec.environment.name = "email_search"
spec.environment.config["actions"] = ["search", "select"]
spec.rollout.episode.max_turns = 3
spec.rollout.sampling.max_tokens = 24
spec.training.steps = int(sys.argv[2]) if len(sys.argv) > 2 else 18
spec.training.learning_rate = 2e-4
with grpc.insecure_channel(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051") as channel:
    service = jobs_grpc.JobServiceStub(channel)
    job = service.CreateJob(jobs.CreateJobRequest(job=jobs.Job(spec=spec)), timeout=30).job
    for update in service.WatchJob(jobs.WatchJobRequest(job_id=job.id)):
        print(job.id, update.event.sequence, update.event.message, flush=True)
