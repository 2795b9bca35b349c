"""Submits a job with plain gRPC and the generated contracts, and prints what happens to it."""

import sys
import uuid

import grpc
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.types.v1 import spec_pb2

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
with grpc.insecure_channel(address) as channel:
    service = jobs_grpc.JobServiceStub(channel)
    spec = spec_pb2.JobSpec(base_model="smollm2-135m-instruct")
    spec.environment.name = "email_search"
    spec.training.steps, spec.training.learning_rate = steps, 2e-4
    request = jobs.CreateJobRequest(job=jobs.Job(spec=spec), request_id=str(uuid.uuid4()))
    job = service.CreateJob(request, timeout=30).job
    for update in service.WatchJob(jobs.WatchJobRequest(job_id=job.id)):
        print(job.id, update.event.sequence, update.event.message, flush=True)
